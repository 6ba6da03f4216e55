"""Offline algorithms that earn rewards while costs stay below a limit."""
