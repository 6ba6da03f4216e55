"""HDF5 files: D4RL's, d3rlpy's, and what reading strangers' files takes."""
