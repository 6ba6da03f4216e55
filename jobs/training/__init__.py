"""Jobs that train."""
