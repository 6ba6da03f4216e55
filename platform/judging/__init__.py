"""Policies judged from logs alone: fitted Q evaluation as trials, estimates with intervals, a page."""
