"""Moments of what is seen while acting, for the scalers that follow it."""

from __future__ import annotations

import numpy as np

Moments = tuple[float, np.ndarray, np.ndarray]  # of how many rows, their mean, their variance


def merged(before: Moments, rows: np.ndarray) -> Moments:
    """The moments of what was seen before and of rows [N, ...] together.

    Source: Chan, Golub and LeVeque 1979, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, equation 2.1.
    """
    n, mean, variance = before
    m, theirs = len(rows), rows.astype(np.float64)
    apart = theirs.mean(0) - mean
    squares = n * variance + m * theirs.var(0) + n * m / (n + m) * np.square(apart)
    return n + m, mean + m / (n + m) * apart, squares / (n + m)
