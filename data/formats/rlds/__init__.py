"""RLDS datasets as TensorFlow Datasets writes them."""
