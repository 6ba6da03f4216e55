"""Jobs on data."""
