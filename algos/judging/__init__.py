"""Judging policies from data."""
