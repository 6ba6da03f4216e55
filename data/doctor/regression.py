"""Small estimators in closed form: how well something is explained by something else, on rows that were not fitted."""

from __future__ import annotations

import numpy as np

FEATURES = 512
_CROSSED = 16  # entries of x, up to which all products of two are features; of more, squares alone
_FINE = 3.0  # half of the frequencies are so many times as high: rewards have kinks
_RIDGES = (1e-6, 1e-4, 1e-2)
_CHUNK = 512


def unexplained(x: np.ndarray, y: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the share of each target's variance that x leaves unexplained, [K]; see `errors`."""
    return errors(x, y, group).mean(0)


def errors(x: np.ndarray, y: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return squared errors out of sample, in units of each target's variance: [N, K] of x [N, D] and y [N, K].

    Ridge regression on x, its products and random Fourier features of it (Rahimi and Recht 2007), in two folds, each of which has
    whole groups (`group` [N], such as episodes); of three ridges that which leaves least counts. NaN for a constant target, and for
    one group.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    features = _features(x)
    second = group % 2 == 1
    left = np.full((len(_RIDGES), *y.shape), np.nan)
    for test in (second, ~second):
        train = ~test
        if not test.any() or not train.any():
            return left[0]
        mean, shift = y[train].mean(0), features[train].mean(0)
        a, b = features[train] - shift, y[train] - mean
        gram, moment, shifted = a.T @ a / len(a), a.T @ b / len(a), features[test] - shift
        for k, ridge in enumerate(_RIDGES):
            left[k, test] = y[test] - mean - shifted @ np.linalg.solve(gram + ridge * np.eye(len(gram)), moment)
    squares = np.square(left)
    best = squares.mean(1).argmin(0)
    variance = y.var(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(variance > 0, squares[best, :, np.arange(y.shape[1])].T / variance, np.nan)


def _features(x: np.ndarray) -> np.ndarray:
    from ..random import fold, normal, root_key, uniform  # of torch, which takes a second to import

    spread = x.std(0)
    x = ((x - x.mean(0)) / np.where(spread > 0, spread, 1))[:, spread > 0]
    width = x.shape[1]
    key = fold(root_key(0), "doctor features")
    frequency = normal(fold(key, "frequency"), (width, FEATURES)).double().numpy() / max(np.sqrt(width), 1)
    frequency *= np.where(np.arange(FEATURES) % 2, _FINE, 1.0)
    phase = 2 * np.pi * uniform(fold(key, "phase"), (FEATURES,)).double().numpy()
    bounded = np.clip(x, -5, 5)  # a far outlier's square would decide the fit
    i, j = np.triu_indices(width) if width <= _CROSSED else (np.arange(width), np.arange(width))
    return np.concatenate([x, bounded[:, i] * bounded[:, j], np.cos(x @ frequency + phase)], 1)


def neighbours(x: np.ndarray, k: int) -> np.ndarray:
    """Find the k nearest other rows of [N, D], in units of each entry's spread: [N, k] int64."""
    spread = x.std(0)
    x = ((x - x.mean(0)) / np.where(spread > 0, spread, 1)).astype(np.float32)
    length = np.square(x).sum(1)
    nearest = np.empty((len(x), k), np.int64)
    for start in range(0, len(x), _CHUNK):
        rows = slice(start, start + _CHUNK)
        distance = length - 2 * (x[rows] @ x.T)
        distance[np.arange(len(distance)), np.arange(start, start + len(distance))] = np.inf
        nearest[rows] = np.argpartition(distance, k - 1, axis=1)[:, :k]
    return nearest
