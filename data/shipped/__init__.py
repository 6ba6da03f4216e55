"""Datasets that come with the package; `data.catalog` opens them by name."""
