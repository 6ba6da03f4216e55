"""Jobs on policies."""
