"""Which episodes are the best: what `top` keeps of a dataset, and what a sampler of the best draws from."""

from __future__ import annotations

import numpy as np


def best_episodes(returns: np.ndarray, steps: np.ndarray, share: float, by: str) -> np.ndarray:
    """[k] int64, rising: the episodes of the highest returns, one at least; of equal returns the earlier one comes first.

    Args:
        returns: [E].
        steps: [E].
        share: Above 0, at most 1.
        by: "episodes": so large a share of the episodes, rounded down. "transitions": episodes from the best one on, until
            another would give them more than so large a share of the transitions, as in the code of Chen et al. 2021
            (kzl/decision-transformer, gym/experiment.py).
    """
    best = np.argsort(-np.asarray(returns, np.float64), kind="stable")
    if by == "episodes":
        n = max(1, int(share * len(best) + 1e-9))  # 0.1 of 30 is three, whatever floats make of it
    else:
        n = max(1, int(np.searchsorted(np.cumsum(steps[best]), share * steps.sum() + 1e-6, side="right")))
    return np.sort(best[:n])
