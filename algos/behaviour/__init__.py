"""Policies that are held to a model of the behaviour that the data come from."""
