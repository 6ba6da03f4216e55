"""Columns of a dataset as raw files in this machine's cache, mapped by every process."""
