"""Policies that imitate the data, all of it or what is worth it."""
