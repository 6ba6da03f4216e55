"""The former name of `d3ray.mdp_dataset`, until the next minor version."""

from .lazy import moved

__getattr__ = moved(__name__, "d3ray.mdp_dataset")
