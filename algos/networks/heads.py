"""The former name of `d3ray.algos.networks.perceptrons`, until the next minor version."""

from ...data.lazy import moved

__getattr__ = moved(__name__, "d3ray.algos.networks.perceptrons")
