"""Means, standard errors and intervals over seeds, beside SciPy's and beside every resample that there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from d3ray.algos.judging.resampling import LEVEL, RESAMPLES
from d3ray.platform.statistics import Difference, band, bootstrap_interval, difference, interval_name, summarise, why_below


def test_a_summary_by_hand() -> None:
    found = summarise([1.0, 2.0, 6.0])
    assert found.n == 3
    assert found.mean == 3.0
    # deviations -2, -1, 3: variance 14 / 2 = 7; sqrt(7 / 3)
    assert found.standard_error == pytest.approx(1.5275252316519468)
    assert (found.min, found.max) == (1.0, 6.0)


def test_one_seed_has_no_uncertainty_to_state() -> None:
    found = summarise([5.0])
    assert (found.mean, found.standard_error, found.interval) == (5.0, None, None)


@pytest.mark.parametrize("values", [[], [1.0, np.nan], [1.0, np.inf]])
def test_what_is_not_finite_is_refused_rather_than_averaged(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite numbers"):
        summarise(values)


def test_the_interval_is_that_of_all_resamples() -> None:
    values = np.array([3.0, 7.0, 8.0, 20.0, 22.5])
    every = np.array([np.mean(drawn) for drawn in itertools.product(values, repeat=5)])  # 3,125 of them, each as likely
    low, high = np.quantile(every, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    found = summarise(values).interval
    assert found is not None
    # 10,000 draws: a quantile's standard error is sqrt(p (1 - p) / n) / density, here below 0.1
    assert found == pytest.approx((low, high), abs=0.35)


def test_the_interval_is_scipys() -> None:
    values = np.random.default_rng(0).normal(100, 15, 12)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    found = summarise(values).interval
    assert found is not None
    assert found == pytest.approx((theirs.low, theirs.high), abs=0.05 * values.std())


def test_the_interval_repeats_and_stays_within_the_seeds() -> None:
    values = np.random.default_rng(2).normal(size=(3, 7))
    low, high = bootstrap_interval(values)
    again = bootstrap_interval(values.copy())
    assert np.array_equal(low, again[0])
    assert np.array_equal(high, again[1])
    assert (low >= values.min(0)).all()
    assert (high <= values.max(0)).all()
    equal = bootstrap_interval(np.full((3, 2), 0.1))
    assert np.array_equal(equal, np.full((2, 2), 0.1))


def test_a_curves_interval_is_that_of_each_of_its_points() -> None:
    values = np.random.default_rng(3).normal(size=(6, 450))  # more points than are resampled at once
    low, high = bootstrap_interval(values)
    for at in (0, 199, 200, 449):
        assert (low[at], high[at]) == pytest.approx(summarise(values[:, at]).interval, rel=1e-12)


def test_the_band_of_few_seeds_is_their_range_and_of_many_an_interval() -> None:
    few = band(np.array([[1.0, 2.0], [3.0, 8.0]]))
    assert few.what == "min–max over seeds"
    assert few.mean.tolist() == [2.0, 5.0]
    assert (few.low.tolist(), few.high.tolist()) == ([1.0, 2.0], [3.0, 8.0])
    many = band(np.random.default_rng(4).normal(size=(5, 2)))
    assert "bootstrap" in many.what
    assert band(np.ones((1, 3))).what == ""


def test_a_seed_without_a_value_leaves_a_gap_and_no_mean_of_the_others() -> None:
    found = band(np.array([[1.0, np.nan, 3.0], [2.0, 5.0, np.inf]]))
    assert found.mean[0] == 1.5
    assert np.isnan(found.mean[1:]).all()
    assert np.isnan(found.low[1:]).all()
    assert np.isnan(found.high[1:]).all()


def test_a_difference_by_hand() -> None:
    # means 3 and 6, variances 2.5 and 10: standard error √(2.5/5 + 10/5), 5.8824 degrees of freedom, t = 2.4587 and p = 0.1075
    found = difference([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    assert found.mean == -3
    assert found.interval == pytest.approx((-3 - 2.4587 * 2.5**0.5, -3 + 2.4587 * 2.5**0.5), abs=2e-3)
    assert found.p == pytest.approx(0.1075, abs=1e-4)


def test_what_has_no_spread_is_compared_as_it_is_and_a_single_seed_not_at_all() -> None:
    assert difference([2.0, 2.0], [5.0, 5.0]) == Difference(-3.0, (-3.0, -3.0), 0.0)
    assert difference([2.0, 2.0], [2.0, 2.0]).p == 1.0
    assert difference([2.0], [5.0, 6.0]) == Difference(-3.5, None, None)


def test_an_interval_of_few_seeds_is_not_called_one_of_95_percent() -> None:
    assert [summarise(range(n)).level for n in (1, 2, 4, 5)] == [None, None, None, 0.95]
    assert [interval_name(n) for n in (2, 4, 5)] == ["interval below 95 %", "interval below 95 %", "95 % interval"]
    assert interval_name(5, 3) == "interval below 95 %"
    assert interval_name(1, 5) == "95 % interval"  # one seed has none
    assert why_below(4, 2, 5) == (
        "2 and 4 seeds are too few for an interval of 95 %: it cannot reach beyond the lowest and the highest of them."
    )
    assert why_below(1, 5) == ""
