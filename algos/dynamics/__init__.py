"""Learned dynamics in raw units, and transitions that are generated with them."""
