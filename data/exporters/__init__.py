"""Exporters: one module a format, each from a dataset to a file or folder that its own program reads."""
