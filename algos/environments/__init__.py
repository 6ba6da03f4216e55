"""Gymnasium environments: adapters, vector stepping, collection, evaluation."""
