"""Policies as a service: they act for whoever asks by HTTP, explore with known probabilities, and log every decision."""
