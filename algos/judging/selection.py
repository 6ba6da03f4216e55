r"""How good estimates are for choosing among policies, where their true values are known.

    rank correlation   Spearman's: Pearson's of the ranks of estimates and true values, equal ones sharing their mean rank
    regret@k           Σ of the k highest J(p) - Σ J(p) of the k policies with the highest estimates
    shortfall@k        max_p J(p) - max { J(p): p among those k }: what is lost where the best of k can still be found by playing
    type I             share of the policies with J(p) ≥ c that are estimated below c: safe ones held back
    type II            share of the policies with J(p) < c that are estimated at c or above: unsafe ones let through

Sources   SCOPE-RL: Kiyohara, Kishimoto, Kawakami, Kobayashi, Nakata, Saito, 2023; as its version 0.2.1 computes them
          (`ope/ops.py`). shortfall@k is the regret@k of Fu et al.: Benchmarks for Deep Off-Policy Evaluation, ICLR 2021.
Choices   The interval of the rank correlation is the percentile interval over resamples of policies; those that hold a single value
          say nothing and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...data.errors import DataError
from .resampling import LEVEL, ends, resamples

FEWEST = 3  # policies; of two the rank correlation is 1 or -1


@dataclass(frozen=True)
class Selection:
    """The worth of estimates of several policies.

    Attributes:
        rank_correlation: Spearman's; None where all estimates or all true values are equal.
        interval: Of it.
        regret, shortfall: regret@k and shortfall@k by k; they are equal for 1.
        type_one, type_two: Error rates; None without a threshold, or where there is no policy of that kind.
    """

    rank_correlation: float | None
    interval: tuple[float, float] | None
    regret: dict[int, float]
    shortfall: dict[int, float]
    type_one: float | None = None
    type_two: float | None = None


def select(
    estimates: np.ndarray,
    truth: np.ndarray,
    *,
    ks: tuple[int, ...] = (1, 3, 5),
    threshold: float | None = None,
    level: float = LEVEL,
) -> Selection:
    """Compare how the estimates [P] of P policies rank those whose true values are `truth` [P].

    Args:
        estimates: One a policy.
        truth: Their true values, such as returns that were played.
        ks: Of regret@k and shortfall@k; those above P are left out.
        threshold: c, the value from which a policy is safe. None: there is none.
        level: Of the interval.

    Raises:
        DataError: fewer than three policies, or a number that is not finite.
    """
    found, true = (np.asarray(x, np.float64) for x in (estimates, truth))
    if found.shape != true.shape or found.ndim != 1 or len(found) < FEWEST:
        raise DataError(
            f"To compare policies takes an estimate and a true value of each of {FEWEST} or more; "
            f"these are {list(found.shape)} and {list(true.shape)}."
        )
    for name, values in (("estimates", found), ("truth", true)):
        if (bad := ~np.isfinite(values)).any():
            raise DataError(f"{name} is {values[bad][0]} for policy {int(bad.argmax())}; leave out policies without an estimate.")
    ks = tuple(k for k in ks if 1 <= k <= len(found))
    best, chosen = np.sort(true)[::-1], true[np.argsort(-found, kind="stable")]  # of equal estimates the earlier policy comes first
    drawn = _spearman(resamples(len(found), "bootstrap over policies").astype(np.float64), found, true)
    correlation = float(_spearman(np.ones((1, len(found))), found, true)[0])
    low, high = ends(drawn[np.isfinite(drawn)], level) if np.isfinite(correlation) else (np.nan, np.nan)
    return Selection(
        rank_correlation=correlation if np.isfinite(correlation) else None,
        interval=(float(low), float(high)) if np.isfinite(correlation) else None,
        regret={k: float(best[:k].sum() - chosen[:k].sum()) for k in ks},
        shortfall={k: float(best[0] - chosen[:k].max()) for k in ks},
        type_one=None if threshold is None else _share(found < threshold, true >= threshold),
        type_two=None if threshold is None else _share(found >= threshold, true < threshold),
    )


def _share(which: np.ndarray, of: np.ndarray) -> float | None:
    return float(which[of].mean()) if of.any() else None


def _spearman(counts: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's correlation for each way to count the pairs, [times, P] to [times]; NaN where there is no variance."""
    a, b = (counts @ (z[:, None] < z) + (counts @ (z[:, None] == z) + 1) / 2 for z in (x, y))  # ranks, ties sharing their mean
    n = counts.sum(1, keepdims=True)
    a, b = (ranks - (counts * ranks).sum(1, keepdims=True) / n for ranks in (a, b))
    spread = (counts * a * a).sum(1) * (counts * b * b).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 0, (counts * a * b).sum(1) / np.sqrt(spread), np.nan)
