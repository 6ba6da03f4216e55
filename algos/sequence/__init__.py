"""Policies that read what came before."""
