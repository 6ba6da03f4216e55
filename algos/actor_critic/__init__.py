"""Policies that climb critics, for continuous actions: deterministic ones, soft ones, and those that keep to the data."""
