"""Draws with replacement of a bootstrap (Efron 1979), by address, so that the same data always give the same interval."""

from __future__ import annotations

import functools

import numpy as np

from ...data.seeds import fold, many_integers, root_key

RESAMPLES = 10_000
LEVEL = 0.95  # of intervals


def resamples(n: int, *address: str, times: int = RESAMPLES) -> np.ndarray:
    """Count how often each of `n` values is in each resample by an address: [times, n], rows sum to n."""
    drawn = many_integers(functools.reduce(fold, address, root_key(0)), times * n, n).reshape(times, n)
    places = np.arange(times)[:, None] * n + drawn
    return np.bincount(places.ravel(), minlength=times * n).reshape(times, n)


def ends(drawn: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Lower and upper end of the percentile interval of what each resample gave: [times, ...] to [2, ...]."""
    return np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)


@functools.lru_cache(4)
def groups(n: int, most: int) -> np.ndarray:
    """A group for each of `n` values, at random and by address: int64 [n], from 0; as many groups as values, up to `most`."""
    if n <= most:
        return np.arange(n)
    return many_integers(fold(root_key(0), "groups"), n, 1 << 62).argsort(kind="stable").argsort() % most
