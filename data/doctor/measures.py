"""What is estimated from the sample: how random the behaviour is, and how much of the state space the data cover."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .sample import Sample, chosen

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


_NEIGHBOURS = 10
_PAIRS = 4_000  # rows whose distances to each other are computed
_FEW = 100  # rows, below which nothing is estimated


@dataclass(frozen=True)
class Behaviour:
    """How far the state settles the action."""

    entropy: float  # nats, of one action given the state, estimated from above; of densities (may be negative) where continuous
    largest: float | None  # nats: of actions drawn evenly; None where bounds are not known
    unexplained: float  # share: of actions that neighbours' majority misses (discrete), or of the variance (continuous)
    baseline: float  # the same share when the state is not looked at


def behaviour(sample: Sample, bounds: tuple[np.ndarray, np.ndarray] | None) -> Behaviour | None:
    """Estimate discrete actions from the ten nearest states, continuous ones by regression; None for other kinds and few rows."""
    if len(sample) < _FEW:
        return None
    if sample.label is not None:
        some = chosen(len(sample), _PAIRS, "behaviour")
        label, n = sample.label[some], max(sample.action.shape[1], int(sample.label.max()) + 1)
        near = label[neighbours(sample.state[some], _NEIGHBOURS)]
        votes = np.stack([np.count_nonzero(near == a, axis=1) for a in np.unique(label)], 1)
        own = np.count_nonzero(near == label[:, None], axis=1)
        entropy = min(-np.log((own + 1 / n) / (_NEIGHBOURS + 1)).mean(), math.log(n))  # few neighbours overrate it
        missed = np.mean(np.unique(label)[votes.argmax(1)] != label)
        share = np.bincount(label).max() / len(label)
        return Behaviour(float(entropy), math.log(n), float(missed), float(1 - share))
    spread = sample.action.std(0)
    if not sample.continuous or not (spread > 0).any():
        return None
    left = unexplained(sample.state, sample.action, blocks(sample))
    moving = np.isfinite(left) & (spread > 0)
    variance = np.minimum(left[moving], 1) * np.square(spread[moving])
    entropy = 0.5 * np.log(2 * np.pi * np.e * np.maximum(variance, 1e-12)).sum()
    largest = None if bounds is None else float(np.log((bounds[1] - bounds[0])[moving]).sum())
    entropy = float(entropy) if largest is None else min(float(entropy), largest)  # a Gaussian has no bounds
    return Behaviour(entropy, largest, float(np.mean(np.minimum(left[moving], 1))), 1.0)


def blocks(sample: Sample) -> np.ndarray:
    """Group rows for folds, [M]: by episode where there are several, else in twenty stretches."""
    several = len(np.unique(sample.episode)) >= 8
    return np.unique(sample.episode, return_inverse=True)[1] if several else np.arange(len(sample)) * 20 // max(len(sample), 1)


@dataclass(frozen=True)
class Coverage:
    """How observations spread."""

    entries: int  # that vary
    effective_rank: float  # exp of the entropy of the correlation matrix's eigenvalues, 1 … entries (Roy and Vetterli 2007)
    distinct: float  # share of sampled observations that differ from each other
    axes: np.ndarray  # [M, 2]: the sample along its two widest directions, in spreads


def coverage(sample: Sample) -> Coverage:
    """Measure the sample's observations, each entry in units of its spread."""
    state = sample.state.astype(np.float64)
    spread = state.std(0)
    moving = (state[:, spread > 1e-6 * np.maximum(np.abs(state).max(0, initial=0), 1e-30)]) if len(state) else state
    distinct = len(np.unique(sample.state, axis=0)) / max(len(state), 1)
    if not moving.size:
        return Coverage(0, 0.0, distinct, np.zeros((len(state), 2)))
    scaled = (moving - moving.mean(0)) / moving.std(0)
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled))
    share = np.maximum(values, 0) / np.maximum(values, 0).sum()
    rank = math.exp(-float(np.sum(share[share > 0] * np.log(share[share > 0]))))
    widest = vectors[:, ::-1][:, :2]
    widest = widest * np.where(widest[np.abs(widest).argmax(0), np.arange(widest.shape[1])] < 0, -1, 1)  # a sign of its own choice
    axes = scaled @ widest
    return Coverage(moving.shape[1], rank, distinct, axes if axes.shape[1] == 2 else np.pad(axes, ((0, 0), (0, 1))))
