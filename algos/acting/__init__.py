"""Policies: raw observations in, raw actions out, with or without torch."""
