"""Whether a mean is below another one, over few seeds: Welch's test and interval, Holm's correction, and Student's interval."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scipy import stats  # MLflow brings it


def interval(scores: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The mean, and the half-width of its confidence interval by Student's t; of one score it is not known (nan)."""
    n = len(scores)
    if n < 2:
        return statistics.mean(scores), float("nan")
    return statistics.mean(scores), float(stats.t.ppf((1 + level) / 2, n - 1)) * statistics.stdev(scores) / n**0.5


def difference(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The mean of `a` less that of `b`, and the half-width of its interval by Welch; of single scores it is not known (nan)."""
    apart = statistics.mean(a) - statistics.mean(b)
    if min(len(a), len(b)) < 2:
        return apart, float("nan")
    if statistics.variance(a) == statistics.variance(b) == 0:
        return apart, 0.0
    found = stats.ttest_ind(a, b, equal_var=False).confidence_interval(level)
    return apart, float(found.high - found.low) / 2


def below(a: Sequence[float], b: Sequence[float]) -> float:
    """The p value of Welch's one-sided test: small where the mean of what `a` is drawn from lies below that of `b`."""
    if statistics.variance(a) == statistics.variance(b) == 0:  # the test has no answer, the scores have
        return 0.0 if a[0] < b[0] else 1.0
    return float(stats.ttest_ind(a, b, equal_var=False, alternative="less").pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p value times the number of those that are not smaller, none below a smaller one's and none above 1."""
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, k in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[k]))
        corrected[k] = highest
    return corrected
