"""Datasets that have a name, and how they get here: those that come with d3ray, published ones, and a team's own."""

from .entries import Catalog, Entry, RemoteFile, catalog
from .local import find

__all__ = ["Catalog", "Entry", "RemoteFile", "catalog", "find"]
