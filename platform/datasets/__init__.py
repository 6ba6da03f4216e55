"""Datasets too large or too many for one process: imported, derived and made on Ray."""
