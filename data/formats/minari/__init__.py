"""Minari's datasets."""
