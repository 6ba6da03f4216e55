"""Returns to go: the sum of the rewards from each step to the end of its episode."""

from __future__ import annotations

import numpy as np

CHUNK = 1 << 20  # rows at once, and at least one episode


def returns_to_go(reward: np.ndarray, first_row: np.ndarray, steps: np.ndarray, gamma: float = 1.0) -> np.ndarray:
    """[len(reward)] float32: Σ γᵏ r over the rest of the episode, for every row of these episodes; 0 elsewhere.

    Added up in float64 by doubling: after pass i every row holds the sum of the next 2ⁱ rewards, so episodes of T steps take
    log₂ T passes and no loop over steps.

    Args:
        reward: [rows], of all rows.
        first_row: [E], in any order.
        steps: [E].
        gamma: Discount; 1 for the returns to go of a Decision Transformer.
    """
    out = np.zeros(len(reward), np.float32)
    ends, start = np.cumsum(steps), 0
    while start < len(steps):
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] - steps[start] + CHUNK)))
        length = steps[start:stop]
        within = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
        rows = np.repeat(first_row[start:stop], length) + within
        left = np.repeat(length, length) - within
        total, reach = reward[rows].astype(np.float64), 1
        while reach < length.max(initial=0):
            on = left > reach  # the row `reach` on belongs to the same episode
            total[on] += gamma**reach * total[np.flatnonzero(on) + reach]
            reach *= 2
        out[rows] = total
        start = stop
    return out
