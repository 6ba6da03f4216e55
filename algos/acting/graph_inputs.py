"""Inputs and outputs of a policy's graph, as `policy.json` has them, and the random numbers that it takes. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...data.config import Config
from ...data.seeds import fold, root_key

_EDGE = 1e-7  # uniform numbers keep off 0 and 1, whose logarithms policies take


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


def numbers(
    seed: int, name: str, decisions: Sequence[int], shape: tuple[int, ...], distribution: Literal["normal", "uniform"]
) -> np.ndarray:
    """Draw what each environment i takes under a name for its `decisions`[i]-th decision: float32 [n, *shape].

    They are standard normal, or uniform on (0, 1), and a function of the policy's seed, the name, the decision and i.
    """
    key = fold(fold(root_key(seed), "act"), name)
    return numbers_of([fold(fold(key, int(decision)), row) for row, decision in enumerate(decisions)], shape, distribution)


def numbers_of(keys: Sequence[int], shape: tuple[int, ...], distribution: Literal["normal", "uniform"]) -> np.ndarray:
    """Draw what follows from a key of each row alone: float32 [n, *shape]."""
    rows = list[np.ndarray]()
    for key in keys:
        rng = np.random.Generator(np.random.Philox(key=key))
        rows.append(rng.standard_normal(shape) if distribution == "normal" else rng.uniform(_EDGE, 1 - _EDGE, shape))
    return np.stack(rows).astype(np.float32)
