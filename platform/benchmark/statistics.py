"""What algorithms come to over the datasets of a benchmark: aggregates, profiles, comparisons, and what evaluations buy.

A score is one number a run; a dataset's runs are a stratum. For an algorithm with runs x_d1 … x_dn on dataset d of D, N in all:

    mean                x̄ = 1/D Σ_d x̄_d
    median              of x̄_1 … x̄_D
    iqm                 interquartile mean: of all N runs together without the ⌊N/4⌋ smallest and the ⌊N/4⌋ largest
    optimality gap      1/D Σ_d 1/n_d Σ_i max(γ - x_di, 0), γ = 100: how far runs stay below an expert; smaller is better
    profile             F(τ) = 1/D Σ_d 1/n_d Σ_i [x_di > τ]
    improvement         P(X > Y) = 1/D Σ_d 1/(n_d m_d) Σ_ij ([x_di > y_dj] + ½ [x_di = y_dj])
    expected best       of k of E evaluated policies, without replacement: Σ_i C(i-1, k-1) / C(E, k) · x_(i), x_(1) ≤ … ≤ x_(E)

Intervals are 95 % percentile intervals of a stratified bootstrap: the runs of every dataset are drawn with replacement, each
dataset for itself. Draws have addresses, (algorithm, dataset), so an interval is the same whatever else is in the table.

Sources: Agarwal, Schwarzer, Castro, Courville, Bellemare: Deep Reinforcement Learning at the Edge of the Statistical Precipice,
NeurIPS 2021, for all but the last. The score against a budget of online evaluations is the measure of Kurenkov, Kolesnikov: Showing
Your Offline Reinforcement Learning Work: Online Evaluation Budget Matters, ICML 2022 (expected online performance). Theirs is over
policies of different hyper-parameters; here it is applied to the checkpoints of one run. The estimator is
the unbiased one of Tang, Lee, Xin, Liu, Yu, Lin: Showing Your Work Doesn't Always Work, ACL 2020, in place of Dodge et al.'s, EMNLP
2019, who draw with replacement and so fall short of the best that was seen.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ...algos.judging.resampling import ends, resamples

EXPERT = 100.0  # γ: an expert's D4RL-normalised return
Aggregate = Literal["iqm", "mean", "median", "optimality gap"]
AGGREGATES: tuple[Aggregate, ...] = ("iqm", "mean", "median", "optimality gap")


@dataclass(frozen=True)
class Estimate:
    value: float
    interval: tuple[float, float] | None  # None where a dataset has a single run, which does not say how runs differ


@dataclass(frozen=True, eq=False)
class Curve:
    """A number by place, with its interval."""

    places: np.ndarray
    values: np.ndarray
    low: np.ndarray | None  # None as in Estimate
    high: np.ndarray | None


class Runs:
    """The scores of an algorithm's runs, by dataset.

    Args:
        label: Of the algorithm; an address of its draws.
        scores: By dataset, one finite number a run, or a curve for `mean_curve`; at least one dataset, and one run on each.
    """

    def __init__(self, label: str, scores: Mapping[str, Sequence[float] | np.ndarray]) -> None:
        self.label = label
        self.scores = {dataset: np.asarray(values, np.float64) for dataset, values in scores.items()}
        if not self.scores or any(len(x) == 0 or not np.isfinite(x).all() for x in self.scores.values()):
            raise ValueError(f"Statistics of {label} need at least one finite score on each of at least one dataset.")

    @property
    def has_intervals(self) -> bool:
        return all(len(x) > 1 for x in self.scores.values())

    @cached_property
    def counts(self) -> dict[str, np.ndarray]:
        """How often each run is in each resample: [RESAMPLES, runs] by dataset."""
        return {d: resamples(len(x), "stratified bootstrap", self.label, d) for d, x in self.scores.items()}

    def aggregate(self, what: Aggregate) -> Estimate:
        found = self._over(_FORMULAS[what])
        return Estimate(float(found[0]), _ends(found[1:]) if self.has_intervals else None)

    def profile(self, places: np.ndarray) -> Curve:
        """The share of runs with a score above each place τ."""
        return self._mean_of(places, {d: (x[:, None] > places).astype(np.float64) for d, x in self.scores.items()})

    def mean_curve(self, places: np.ndarray) -> Curve:
        """The mean over datasets of the mean over runs, where a run's score is a curve over places."""
        return self._mean_of(places, self.scores)

    def _over(self, formula: Callable[[list[tuple[np.ndarray, np.ndarray]]], np.ndarray]) -> np.ndarray:
        """A formula for the runs as they are, and for every resample after it: [1 + RESAMPLES]."""
        return formula([(x, np.vstack([np.ones(len(x), np.int64), self.counts[d]])) for d, x in self.scores.items()])

    def _mean_of(self, places: np.ndarray, values: Mapping[str, np.ndarray]) -> Curve:
        mean = np.mean([v.mean(0) for v in values.values()], axis=0)
        if not self.has_intervals:
            return Curve(places, mean, None, None)
        drawn = np.mean([self.counts[d] @ v / len(v) for d, v in values.items()], axis=0)
        low, high = ends(drawn)
        return Curve(places, mean, low, high)


def improvement(x: Runs, y: Runs) -> Estimate:
    """The probability that a run of `x` scores above one of `y` on the same dataset; ties count half.

    Raises ValueError: none is shared.
    """
    shared = [d for d in x.scores if d in y.scores]
    if not shared:
        raise ValueError(f"{x.label} and {y.label} have no dataset in common.")
    found: list[np.ndarray] = []
    for d in shared:
        a, b = x.scores[d], y.scores[d]
        wins = (a[:, None] > b).astype(np.float64) + 0.5 * (a[:, None] == b)
        ones, others = (np.vstack([np.ones(r.scores[d].shape, np.int64), r.counts[d]]) for r in (x, y))
        found.append(((ones @ wins) * others).sum(1) / wins.size)
    values = np.mean(found, axis=0)
    several = all(len(r.scores[d]) > 1 for r in (x, y) for d in shared)
    return Estimate(float(values[0]), _ends(values[1:]) if several else None)


def expected_best(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """The expected best of k of E finite scores, drawn without replacement, for k = 1 … E: [E].

    The mean for 1, the largest for E.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    return _shares(len(ordered)) @ ordered


@functools.cache
def _shares(n: int) -> np.ndarray:
    """How often the i-th smallest of n is the largest of k drawn ones: C(i-1, k-1) / C(n, k), [k, i]."""
    return np.array([[math.comb(i, k) / math.comb(n, k + 1) for i in range(n)] for k in range(n)])


def _ends(drawn: np.ndarray) -> tuple[float, float]:
    low, high = ends(drawn)
    return float(low), float(high)


# ---- formulas: of the scores of every dataset with how often each counts, [runs] and [resamples, runs]

_Strata = list[tuple[np.ndarray, np.ndarray]]


def _means(strata: _Strata) -> np.ndarray:
    return np.stack([counts @ x / len(x) for x, counts in strata])


def _iqm(strata: _Strata) -> np.ndarray:
    x, counts = np.concatenate([x for x, _ in strata]), np.concatenate([counts for _, counts in strata], axis=1)
    order = np.argsort(x, kind="stable")
    x, upto = x[order], np.cumsum(counts[:, order], axis=1)
    n, cut = len(x), len(x) // 4
    kept = np.diff(np.clip(upto, cut, n - cut), axis=1, prepend=cut)  # of those that count, the ones between the quarters
    return kept @ x / (n - 2 * cut)


_FORMULAS: dict[Aggregate, Callable[[_Strata], np.ndarray]] = {
    "iqm": _iqm,
    "mean": lambda strata: _means(strata).mean(0),
    "median": lambda strata: np.median(_means(strata), axis=0),
    "optimality gap": lambda strata: _means([(np.maximum(EXPERT - x, 0.0), counts) for x, counts in strata]).mean(0),
}
