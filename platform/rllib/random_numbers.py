"""The process's random generators, which RLlib and its environments draw from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_numbers() -> dict[str, Any]:
    found: dict[str, Any] = {"torch": torch.get_rng_state(), "numpy": list(np.random.get_state()), "python": random.getstate()}
    return found | ({"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() and torch.cuda.is_initialized() else {})


def set_random_numbers(state: Any) -> None:
    """Puts the generators into a state that `random_numbers` gave."""
    torch.set_rng_state(state["torch"])
    np.random.set_state(tuple(state["numpy"]))
    random.setstate(state["python"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])
