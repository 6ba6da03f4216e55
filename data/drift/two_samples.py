"""Whether two groups of episodes have the same distributions, column by column, by permuting whole episodes.

Steps of one episode resemble each other, so that tests that take steps for independent find differences everywhere. Episodes are
what is exchanged here: if both groups come from one world, it does not matter which episodes are called new. For each column the
statistic is

    D = max over x of |F_new(x) - F_old(x)|        (Kolmogorov and Smirnov) of numbers, over 64 quantiles of both, and
    D = ½ Σ over kinds of |p_new - p_old|          (total variation) of categories,

and p is how often permuted episodes give as much. Columns are corrected for each other by the largest statistic of all of them in
each permutation, in units of its own spread (Westfall and Young 1993: Resampling-Based Multiple Testing), which uses that columns
are alike and costs no resolution, as a product with their number would.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..seeds import fold, many_integers, root_key

BINS = 64
TIMES = 1_000  # permutations: the smallest p is 0.001


def occurrences(values: np.ndarray, episode: np.ndarray, n_episodes: int, *, kinds: bool) -> np.ndarray:
    """Count each episode's steps by bin: [N] to [E, bins]; bins are kinds, or lie between quantiles of all."""
    edges = np.unique(values if kinds else np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1], method="lower"))
    bins, width = np.searchsorted(edges, values), len(edges) + 1
    return np.bincount(episode * width + bins, minlength=n_episodes * width).reshape(n_episodes, width).astype(np.float64)


def distance(new: np.ndarray, old: np.ndarray, *, kinds: bool) -> np.ndarray:
    """Measure how far counts by bin lie apart, D of above: [..., bins] each to [...]."""
    new, old = (counts / np.maximum(counts.sum(-1, keepdims=True), 1) for counts in (new, old))
    if kinds:
        return np.abs(new - old).sum(-1) / 2
    return np.abs((new - old).cumsum(-1)).max(-1)


def permuted(n_old: int, n_new: int, times: int = TIMES) -> np.ndarray:
    """Draw which episodes are called new, `n_new` of all of them: [times, n_old + n_new] of 0 and 1, by address."""
    n = n_old + n_new
    keys = many_integers(fold(root_key(0), "permutations"), times * n, 1 << 62).reshape(times, n)
    ranks = keys.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    return (ranks < n_new).astype(np.float64)


def compare(counts: Sequence[np.ndarray], kinds: Sequence[bool], n_old: int, times: int = TIMES) -> tuple[np.ndarray, np.ndarray]:
    """Compare old with new episodes by their counts.

    Args:
        counts: Of each column, [E, bins], old episodes first.
        kinds: Of each column, whether bins are categories.
        n_old: How many are old.
        times: Permutations.

    Returns: D and corrected p of each column, float64 [columns].
    """
    n = len(counts[0])
    drawn = permuted(n_old, n - n_old, times)
    observed, by_chance = np.empty(len(counts)), np.empty((len(counts), times))
    for k, (column, unordered) in enumerate(zip(counts, kinds, strict=True)):
        total = column.sum(0)
        new = column[n_old:].sum(0)
        observed[k] = distance(new, total - new, kinds=unordered)
        moved = drawn @ column
        by_chance[k] = distance(moved, total - moved, kinds=unordered)
    mean, spread = by_chance.mean(1), by_chance.std(1)
    scale = np.where(spread > 0, spread, 1.0)
    largest = ((by_chance - mean[:, None]) / scale[:, None]).max(0)
    beyond = (largest[None] >= ((observed - mean) / scale)[:, None] - 1e-9).sum(1)
    return observed, (1 + beyond) / (1 + times)
