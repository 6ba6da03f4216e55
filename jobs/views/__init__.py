"""Experiments and datasets as they look on a terminal."""
