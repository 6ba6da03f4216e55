"""Costs: what a policy is to keep small beside earning rewards, a column `cost` of the data, one number a step."""

from __future__ import annotations

import math

import numpy as np

from ..errors import ConfigError
from .rows import BLOCK, Rows, block, n_blocks

COST = "cost"  # the column, and by Safety-Gymnasium's convention where environments say it: `info["cost"]`
SAID = (COST, "costs")  # what files call it


def sum_costs(rows: Rows, steps: np.ndarray) -> np.ndarray:
    """Sum the costs of each episode, undiscounted, [E] float64, of logical rows and transitions [E]; a closing row costs 0."""
    ends, sums = np.cumsum(np.asarray(steps, np.int64) + 1), np.zeros(len(steps))
    for k in range(n_blocks(rows.n)):
        cost = block(rows, COST, k).astype(np.float64)
        episode = np.searchsorted(ends, k * BLOCK + np.arange(len(cost)), side="right")
        sums[episode[0] : episode[-1] + 1] += np.bincount(episode - episode[0], cost)
    return sums


def checked_limit(limit: float, name: str = "cost_limit") -> float:
    """Return a limit of an episode's cost. Raises ConfigError where it is no number from 0 on."""
    if not (math.isfinite(limit) and limit >= 0):
        raise ConfigError(f"{name} is {limit:g}; it is the cost that an episode may come to, a number from 0 on.")
    return limit
