"""Policies that are told a goal, which they learn in hindsight from what was reached."""
