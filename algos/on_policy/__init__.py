"""Algorithms that learn from what their present policy just did, and forget it then."""
