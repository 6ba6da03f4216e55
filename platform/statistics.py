"""What several seeds say together: means, standard errors, bootstrap intervals; and whether two means differ.

The interval is the percentile interval of the mean (Efron 1979): seeds are drawn with replacement 10,000 times. The draws have
addresses (`d3ray.data.random`), so the same values always give the same interval.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algos.judging.resampling import LEVEL, ends, resamples
from .words import level_name

FEW = 5  # with fewer seeds a bootstrap interval cannot have its level: it cannot reach beyond the seeds themselves
_CHUNK = 200  # points of a curve that are resampled at once: 16 MB


@dataclass(frozen=True)
class Summary:
    """Of one number a seed. What needs two seeds is None for one."""

    n: int
    mean: float
    standard_error: float | None  # sample standard deviation (n - 1) / sqrt(n)
    interval: tuple[float, float] | None  # bootstrap
    min: float
    max: float
    level: float | None = None  # that the interval has; None: fewer than `FEW` seeds give none of 95 %


@dataclass(frozen=True)
class Band:
    """Of a curve a seed, by point; NaN where a seed has no finite value."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    what: str  # "min-max over seeds", …; empty for a single seed, which has no band


@dataclass(frozen=True)
class Difference:
    """Of the means of two groups of seeds, the first less the second. What needs two seeds of each is None for fewer."""

    mean: float
    interval: tuple[float, float] | None  # 95 %
    p: float | None  # of a two-sided t-test: that means which do not differ would come so far apart


def summarise(values: Sequence[float] | np.ndarray) -> Summary:
    """The summary of one finite number a seed. Raises ValueError for none, or one that is not finite: leave those out by name."""
    seeds = np.asarray(values, np.float64)
    if seeds.ndim != 1 or len(seeds) == 0 or not np.isfinite(seeds).all():
        raise ValueError(f"A summary needs finite numbers, one a seed; these are {seeds}.")
    mean, low, high = float(seeds.mean()), float(seeds.min()), float(seeds.max())
    if len(seeds) == 1:
        return Summary(1, mean, None, None, low, high)
    bounds = bootstrap_interval(seeds[:, None])
    interval = float(bounds[0][0]), float(bounds[1][0])
    level = LEVEL if len(seeds) >= FEW else None
    return Summary(len(seeds), mean, float(seeds.std(ddof=1)) / len(seeds) ** 0.5, interval, low, high, level)


def interval_name(*seeds: int) -> str:
    """Name intervals over so many seeds, for printing; those of a single seed, which has none, do not count."""
    return level_name(None if any(1 < n < FEW for n in seeds) else LEVEL)


def why_below(*seeds: int) -> str:
    """A sentence where some of so many seeds are too few for the level of an interval; empty where none are."""
    few = [str(n) for n in sorted({n for n in seeds if 1 < n < FEW})]
    listed = f"{', '.join(few[:-1])} and {few[-1]}" if len(few) > 1 else "".join(few)
    said = "seeds are too few for an interval of 95 %: it cannot reach beyond the lowest and the highest of them."
    return f"{listed} {said}" if few else ""


def band(values: np.ndarray) -> Band:
    """Mean and band of curves [seeds, points]: smallest and largest for fewer than five seeds, else a 95 % bootstrap interval."""
    gap = ~np.isfinite(values).all(0)
    values = np.where(gap, 0.0, values)
    if len(values) < FEW:
        low, high, what = values.min(0), values.max(0), "min–max over seeds" if len(values) > 1 else ""
    else:
        (low, high), what = bootstrap_interval(values), "95 % bootstrap interval of the mean over seeds"
    mean, low, high = (np.where(gap, np.nan, v) for v in (values.mean(0), low, high))
    return Band(mean, low, high, what)


def bootstrap_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper end [points] of the mean's 95 % percentile interval, for finite values [seeds, points]."""
    weights, parts = _weights(len(values)), range(0, values.shape[1], _CHUNK)
    found = [ends(weights @ values[:, at : at + _CHUNK]) for at in parts]
    low, high = np.concatenate(found, axis=1) if found else np.zeros((2, 0))
    # A weighted mean of equal numbers may differ from them in the last digit.
    return np.clip(low, values.min(0), values.max(0)), np.clip(high, values.min(0), values.max(0))


@functools.cache
def _weights(n: int) -> np.ndarray:
    """How much each of `n` seeds counts in each resample: [RESAMPLES, n], rows sum to 1."""
    return resamples(n, "bootstrap over seeds") / n


def difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Test whether the means of the populations of `a` and `b` differ, by Welch's t-test; without any spread, compare directly."""
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    apart = float(first.mean() - second.mean())
    if min(len(first), len(second)) < 2:
        return Difference(apart, None, None)
    return _tested(apart, first.std() == second.std() == 0, "ttest_ind", first, second, equal_var=False)


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Test as `difference`, but in pairs: `a` and `b` belong together one by one, as returns of equal episodes."""
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    apart = float((first - second).mean())
    if len(first) < 2:
        return Difference(apart, None, None)
    return _tested(apart, (first - second).std() == 0, "ttest_rel", first, second)


def _tested(apart: float, without_spread: bool, test: str, *groups: np.ndarray, **how: bool) -> Difference:
    if without_spread:
        return Difference(apart, (apart, apart), 1.0 if apart == 0 else 0.0)
    from scipy import stats  # half a second to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a group whose numbers are all alike, beside one that has a spread
        found: Any = getattr(stats, test)(*groups, **how)
    interval = found.confidence_interval(LEVEL)
    return Difference(apart, (float(interval.low), float(interval.high)), float(found.pvalue))


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p value times the number of those that are not smaller, none below a smaller one's and none above 1 (Holm 1979)."""
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, k in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[k]))
        corrected[k] = highest
    return corrected
