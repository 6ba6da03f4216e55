"""Algorithms as trials know them, whoever made them."""
