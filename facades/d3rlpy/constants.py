"""d3rlpy's small words: kinds of actions, devices, seeds."""

from __future__ import annotations

import enum
import random
from typing import Any

import numpy as np
import torch


class ActionSpace(enum.Enum):
    """Kinds of actions."""

    CONTINUOUS = 1
    DISCRETE = 2


def device_of(device: Any) -> Any:
    """d3rlpy's `device` as d3ray's: False and None are the CPU there, True the first GPU, a number or a name another."""
    return "cpu" if device is None or device is False else device


def seed(n: int) -> None:
    """Seeds Python's, NumPy's and torch's generators; algorithms that are created from here on get their seeds from it."""
    random.seed(n)
    np.random.seed(n)
    torch.manual_seed(n)


def drawn_seed() -> int:
    """A seed for an algorithm whose user gave none."""
    return random.getrandbits(31)
