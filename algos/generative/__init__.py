"""Policies that generate actions from noise: flows and diffusion."""
