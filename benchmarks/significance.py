"""Whether a mean is below another one, over few seeds: Welch's test and interval, Holm's correction, and Student's interval."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scipy import stats

from d3ray.platform.statistics import difference as welch
from d3ray.platform.statistics import holm

__all__ = ["below", "difference", "holm", "interval"]


def interval(scores: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The mean, and the half-width of its confidence interval by Student's t; of one score it is not known (nan)."""
    n = len(scores)
    if n < 2:
        return statistics.mean(scores), float("nan")
    return statistics.mean(scores), float(stats.t.ppf((1 + level) / 2, n - 1)) * statistics.stdev(scores) / n**0.5


def difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """The mean of `a` less that of `b`, and the half-width of its 95 % interval by Welch; unknown (nan) of single scores."""
    found = welch(a, b)
    return found.mean, float("nan") if found.interval is None else (found.interval[1] - found.interval[0]) / 2


def below(a: Sequence[float], b: Sequence[float]) -> float:
    """The p value of Welch's one-sided test: small where the mean of what `a` is drawn from lies below that of `b`."""
    if statistics.variance(a) == statistics.variance(b) == 0:  # the test has no answer, the scores have
        return 0.0 if a[0] < b[0] else 1.0
    return float(stats.ttest_ind(a, b, equal_var=False, alternative="less").pvalue)
