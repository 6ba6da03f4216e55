"""d3ray's version, in a file of its own: what writes it into files asks here, not at the root, which imports every floor."""

__version__ = "0.1.0"
