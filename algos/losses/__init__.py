"""Pieces of losses that pages of several families read."""
