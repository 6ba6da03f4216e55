r"""Intervals of an estimate over episodes.

    bootstrap    quantiles α/2 and 1 - α/2 of the estimate over resamples of whole episodes, each made anew        `percentile`
    bca          the same at Φ(z₀ + (z₀ + z_α) / (1 - a (z₀ + z_α))): z₀ the bias of resamples, a the skewness of
                 the jackknife; bias-corrected and accelerated                                                            `bca`
    student      θ ± t_{n-1} s / √n, s / √n being the estimate's standard error                                       `student`
    hoeffding    θ ± (b - a) √(log(2/α) / 2n)                                                                       `hoeffding`
    bernstein    θ ± √(2 s² log(4/α) / n) ± 7 (b - a) log(4/α) / (3 (n - 1))                                        `bernstein`

The first three are right for many episodes, and their coverage is measured in benchmarks/results/ope.md. The last two are right for
any number, where values of single episodes lie in [a, b]: they are wide, and hold for means only.

Papers    Efron, 1979 and 1987. Hoeffding, 1963. Maurer, Pontil: Empirical Bernstein Bounds and Sample Variance Penalization,
          COLT 2009, theorem 4 for both sides; for policies Thomas, Theocharous, Ghavamzadeh, AAAI 2015.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import numpy as np
from scipy import stats

from .resampling import LEVEL, ends, resamples
from .statistic import Statistic

Interval = tuple[float, float]
Kind = Literal["bootstrap", "bca", "student", "hoeffding", "bernstein"]
KINDS: tuple[Kind, ...] = ("bootstrap", "bca", "student", "hoeffding", "bernstein")
OF_MEANS = ("hoeffding", "bernstein")  # need values of single episodes, and where these lie
TIMES = 2000  # resamples


def interval_of(
    statistic: Statistic, kind: Kind, *, level: float = LEVEL, bounds: Interval | None = None, times: int = TIMES
) -> Interval | None:
    """Give an estimate's interval of a `kind`, which holds the truth in the share `level`; None where it is for means only.

    `bounds` are a and b of the last two kinds; None: the smallest and largest value seen, with which they promise less than they
    say. `times` are the resamples of the first two.
    """
    match kind:
        case "bootstrap":
            return percentile(statistic, level, times)
        case "bca":
            return bca(statistic, level, times)
        case "student":
            return student(statistic, level)
        case _:
            if statistic.values is None:
                return None
            bounds = bounds or (float(statistic.values.min()), float(statistic.values.max()))
            return (hoeffding if kind == "hoeffding" else bernstein)(statistic.values, bounds, level)


def percentile(statistic: Statistic, level: float = LEVEL, times: int = TIMES) -> Interval:
    low, high = ends(statistic.at(_counts(statistic.n_units, times)), level)
    return float(low), float(high)


def bca(statistic: Statistic, level: float = LEVEL, times: int = TIMES) -> Interval:
    drawn, without = statistic.at(_counts(statistic.n_units, times)), statistic.without()
    below = float((drawn < statistic.value).mean() + (drawn <= statistic.value).mean()) / 2
    bias = float(stats.norm.ppf(min(max(below, 1 / (times + 1)), times / (times + 1))))
    apart = without.mean() - without
    spread = float(np.square(apart).sum()) ** 1.5
    skew = float((apart**3).sum()) / (6 * spread) if spread > 0 else 0.0
    tails = bias + stats.norm.ppf([(1 - level) / 2, (1 + level) / 2])
    low, high = np.quantile(drawn, stats.norm.cdf(bias + tails / (1 - skew * tails)))
    return float(low), float(high)


def student(statistic: Statistic, level: float = LEVEL) -> Interval:
    """Student's t of a mean; of a ratio by its linear part (the delta method)."""
    half = float(stats.t.ppf((1 + level) / 2, statistic.n_units - 1)) * statistic.standard_error()
    return statistic.value - half, statistic.value + half


def hoeffding(values: np.ndarray, bounds: Interval, level: float = LEVEL) -> Interval:
    half = (bounds[1] - bounds[0]) * math.sqrt(math.log(2 / (1 - level)) / (2 * len(values)))
    return float(values.mean()) - half, float(values.mean()) + half


def bernstein(values: np.ndarray, bounds: Interval, level: float = LEVEL) -> Interval:
    n, log = len(values), math.log(4 / (1 - level))
    half = math.sqrt(2 * float(values.var(ddof=1)) * log / n) + 7 * (bounds[1] - bounds[0]) * log / (3 * (n - 1))
    return float(values.mean()) - half, float(values.mean()) + half


@functools.lru_cache(2)
def _counts(n: int, times: int) -> np.ndarray:
    """Count how often each of `n` units is in each resample, [times, n]; the same for all estimates of some logs."""
    return resamples(n, "bootstrap over episodes", times=times).astype(np.float64)
