"""Inputs and outputs of a policy's graph, as `policy.json` has them. Imports no torch."""

from __future__ import annotations

from typing import Literal

from ...data.config import Config


class Port(Config):
    """An input or output of the graph. The first axis of `shape` is always the batch."""

    name: str
    dtype: str
    shape: tuple[int | Literal["batch"], ...]


class StateInput(Port):
    """An input that carries memory: `becomes` is the output to feed at the next step, `start` its value at an episode's start."""

    becomes: str
    start: float = 0.0


class NoiseInput(Port):
    """An input that takes random numbers, drawn anew at every step."""

    distribution: Literal["normal", "uniform"]
