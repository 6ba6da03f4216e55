"""What makes datasets of datasets, lazily, and what compares two."""
