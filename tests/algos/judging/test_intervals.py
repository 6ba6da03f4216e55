"""Intervals beside SciPy's and beside formulas worked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats

from d3ray.algos.judging.importance import doubly_robust, importance_sampling, weighted_importance_sampling
from d3ray.algos.judging.intervals import Interval, bca, bernstein, hoeffding, interval_of, percentile, student
from d3ray.algos.judging.logs import Logs
from d3ray.algos.judging.statistic import mean_of

from .slow_estimates import random_logs


@pytest.fixture(scope="module")
def logs() -> Logs:
    return random_logs(0, [1] * 60)


def wis(weight: np.ndarray, gain: np.ndarray, axis: int = -1) -> np.ndarray:
    return (weight * gain).sum(axis) / weight.sum(axis)


@pytest.mark.parametrize(("ours", "method"), [(percentile, "percentile"), (bca, "BCa")])
def test_bootstrap_intervals_are_scipys(logs: Logs, ours: Callable[..., Interval], method: str) -> None:
    weight, gain = np.exp(logs.episode_log_weight), logs.returns
    for found, columns, function in (
        (importance_sampling(logs), (weight * gain,), np.mean),
        (weighted_importance_sampling(logs), (weight, gain), wis),
    ):
        theirs = scipy.stats.bootstrap(
            columns, function, paired=True, n_resamples=20_000, method=method, rng=np.random.default_rng(1)
        ).confidence_interval
        low, high = ours(found, 0.95, 20_000)
        assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=0.04 * (theirs.high - theirs.low))


def test_the_bias_of_a_skewed_estimate_is_corrected() -> None:
    values = np.random.default_rng(0).exponential(1, 40) ** 2
    logs = Logs(values, np.ones(40, int))
    found = mean_of(logs, values)
    theirs = scipy.stats.bootstrap((values,), np.mean, n_resamples=20_000, rng=np.random.default_rng(1)).confidence_interval
    plain, width = percentile(found, 0.95, 20_000), theirs.high - theirs.low
    assert bca(found, 0.95, 20_000) == pytest.approx((theirs.low, theirs.high), abs=0.05 * width)
    assert theirs.high > plain[1] + 0.1 * width


def test_students_interval_is_scipys_and_of_a_ratio_the_delta_methods(logs: Logs) -> None:
    found = doubly_robust(logs)
    assert found.values is not None
    theirs = scipy.stats.t.interval(0.9, 59, found.values.mean(), scipy.stats.sem(found.values))
    assert student(found, 0.9) == pytest.approx(theirs, rel=1e-12)
    weight, gain = np.exp(logs.episode_log_weight), logs.returns
    ratio = wis(weight, gain)
    error = math.sqrt(60 / 59 * (np.square(weight * (gain - ratio)).sum())) / weight.sum()
    low, high = student(weighted_importance_sampling(logs))
    assert (low + high) / 2 == pytest.approx(ratio)
    assert (high - low) / 2 == pytest.approx(scipy.stats.t.ppf(0.975, 59) * error)


def test_bounds_by_hand() -> None:
    values = np.array([0.0, 1.0, 1.0, 2.0])
    half = 2 * math.sqrt(math.log(2 / 0.05) / 8)
    assert hoeffding(values, (0, 2)) == pytest.approx((1 - half, 1 + half))
    log = math.log(80)
    half = math.sqrt(2 * (2 / 3) * log / 4) + 7 * 2 * log / 9
    assert bernstein(values, (0, 2)) == pytest.approx((1 - half, 1 + half))
    many = np.tile(values * 0.01, 10_000)
    assert bernstein(many, (0, 2))[1] < hoeffding(many, (0, 2))[1]  # small variance within wide bounds


def test_bounds_hold_for_means_only(logs: Logs) -> None:
    assert interval_of(weighted_importance_sampling(logs), "hoeffding") is None
    low, high = interval_of(importance_sampling(logs), "hoeffding", bounds=(-5, 20)) or (0, 0)
    wide = interval_of(importance_sampling(logs), "hoeffding") or (0, 0)
    assert low < wide[0]
    assert wide[1] < high
