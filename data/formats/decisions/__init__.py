"""Logs of served policies."""
