"""Statistics over datasets: by hand, beside SciPy's, and beside slow versions that share nothing with them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from d3ray.algos.judging.resampling import RESAMPLES, resamples
from d3ray.platform.benchmark.statistics import AGGREGATES, Aggregate, Runs, expected_best, improvement
from d3ray.platform.statistics import bootstrap_interval

TWO = {"hopper": [10.0, 20.0, 60.0], "walker": [110.0, 90.0, 40.0]}


def slow(what: Aggregate, scores: dict[str, list[float]]) -> float:
    """An aggregate in plain Python."""
    means = [sum(x) / len(x) for x in scores.values()]
    everything = sorted(value for x in scores.values() for value in x)
    if what == "iqm":
        cut = len(everything) // 4
        middle = everything[cut : len(everything) - cut]
        return sum(middle) / len(middle)
    if what == "mean":
        return sum(means) / len(means)
    if what == "median":
        means.sort()
        return (means[(len(means) - 1) // 2] + means[len(means) // 2]) / 2
    return sum(sum(max(100 - value, 0) for value in x) / len(x) for x in scores.values()) / len(scores)


@pytest.mark.parametrize("sizes", [(3, 3), (4, 4, 4, 4), (2, 5, 3), (1,), (10, 10, 10)])
def test_aggregates_are_those_of_a_slow_version_and_of_scipy(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(sizes))
    scores = {f"d{k}": rng.normal(60, 40, n).tolist() for k, n in enumerate(sizes)}
    runs = Runs("X", scores)
    for what in AGGREGATES:
        assert runs.aggregate(what).value == pytest.approx(slow(what, scores), rel=1e-12), what
    pooled = np.concatenate(list(scores.values()))
    assert runs.aggregate("iqm").value == pytest.approx(scipy.stats.trim_mean(pooled, 0.25), rel=1e-12)


@pytest.mark.parametrize("what", AGGREGATES)
def test_intervals_are_those_of_every_resample_within_datasets(what: Aggregate) -> None:
    scores = {"a": [1.0, 12.5, 31.0], "b": [55.0, 71.5, 104.0, 97.0]}
    every = [
        slow(what, {"a": list(first), "b": list(second)})
        for first in itertools.product(scores["a"], repeat=3)
        for second in itertools.product(scores["b"], repeat=4)
    ]  # 27 · 256, each as likely
    found = Runs("X", scores).aggregate(what).interval
    assert found is not None
    low, high = np.quantile(every, [0.025, 0.975])
    assert found == pytest.approx((low, high), abs=1.0)
    pooled = np.random.default_rng(0).choice([*scores["a"], *scores["b"]], (4000, 7))  # what forgets the datasets is far off
    unstratified = [slow(what, {"a": row[:3].tolist(), "b": row[3:].tolist()}) for row in pooled]
    assert abs(np.quantile(unstratified, 0.025) - low) > 5


def test_an_interval_has_its_own_draws_whatever_else_is_compared() -> None:
    alone = Runs("IQL", {"hopper": TWO["hopper"]})
    both = Runs("IQL", TWO)
    assert np.array_equal(alone.counts["hopper"], both.counts["hopper"])
    assert both.aggregate("iqm") == Runs("IQL", dict(TWO)).aggregate("iqm")
    assert not np.array_equal(both.counts["hopper"], both.counts["walker"])
    assert not np.array_equal(both.counts["hopper"], Runs("CQL", TWO).counts["hopper"])
    assert (both.counts["hopper"].sum(1) == 3).all()
    # a first run is in a resample of three (2/3)³ of the time not at all
    assert (resamples(3, "x")[:, 0] == 0).mean() == pytest.approx((2 / 3) ** 3, abs=4 * math.sqrt(0.21 / RESAMPLES))


def test_a_single_run_says_nothing_of_how_runs_differ() -> None:
    lone = Runs("X", {"a": [1.0, 2.0], "b": [3.0]})
    assert not lone.has_intervals
    assert lone.aggregate("iqm").interval is None
    assert lone.profile(np.array([0.0])).low is None
    assert improvement(lone, Runs("Y", {"a": [0.0, 1.0], "b": [1.0, 2.0]})).interval is None


@pytest.mark.parametrize("scores", [{}, {"a": []}, {"a": [1.0, math.nan]}])
def test_what_is_no_score_is_refused(scores: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError, match="finite score"):
        Runs("X", scores)


def test_a_profile_by_hand_and_its_band_is_the_interval_of_each_place() -> None:
    places = np.array([-1.0, 10.0, 30.0, 100.0, 200.0])
    found = Runs("IQL", TWO).profile(places)
    # above 10: 2 of 3 and all; a score is not above itself. Above 30: 1 of 3 and all.
    assert found.values.tolist() == pytest.approx([1, (2 / 3 + 1) / 2, (1 / 3 + 1) / 2, (0 + 1 / 3) / 2, 0])
    assert found.low is not None
    assert found.high is not None
    assert (found.low[0], found.high[0], found.low[-1], found.high[-1]) == (1, 1, 0, 0)
    each = {d: [float(x > 30) for x in scores] for d, scores in TWO.items()}
    assert (found.low[2], found.high[2]) == pytest.approx(Runs("IQL", each).aggregate("mean").interval)


def test_improvement_by_hand_with_ties() -> None:
    x, y = Runs("X", {"a": [1.0, 2.0], "b": [5.0, 5.0]}), Runs("Y", {"a": [1.0, 0.0], "b": [9.0, 5.0, 1.0]})
    # a: 1>1 half, 1>0, 2>1, 2>0: 3.5 of 4. b: each 5 against 9, 5, 1: 0 + ½ + 1, of 3: ½
    assert improvement(x, y).value == pytest.approx((3.5 / 4 + 0.5) / 2)
    assert improvement(y, x).value == pytest.approx(1 - improvement(x, y).value)


def test_improvement_is_scipys_mann_whitney_and_its_interval_scipys_bootstrap() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(1, 1, 9), rng.normal(0, 1, 7)
    found = improvement(Runs("X", {"d": a}), Runs("Y", {"d": b}))
    assert found.value == pytest.approx(scipy.stats.mannwhitneyu(a, b).statistic / 63, rel=1e-12)

    def probability(x: np.ndarray, y: np.ndarray, axis: int = -1) -> np.ndarray:
        return (x[..., :, None] > y[..., None, :]).mean((-1, -2))

    theirs = scipy.stats.bootstrap((a, b), probability, method="percentile", n_resamples=RESAMPLES, rng=np.random.default_rng(1))
    assert found.interval == pytest.approx((theirs.confidence_interval.low, theirs.confidence_interval.high), abs=0.02)


def test_improvement_is_over_datasets_that_both_have() -> None:
    x, y = Runs("X", {"a": [1.0], "b": [0.0]}), Runs("Y", {"b": [1.0], "c": [5.0]})
    assert improvement(x, y).value == 0
    with pytest.raises(ValueError, match="no dataset in common"):
        improvement(x, Runs("Z", {"c": [1.0]}))


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_the_expected_best_is_the_mean_over_every_choice(n: int) -> None:
    values = np.random.default_rng(n).integers(-20, 20, n).astype(float)
    found = expected_best(values)
    for k in range(1, n + 1):
        every = [max(chosen) for chosen in itertools.combinations(values, k)]
        assert found[k - 1] == pytest.approx(sum(every) / len(every), rel=1e-12, abs=1e-12)


def test_a_mean_curve_is_the_mean_over_datasets_of_means_over_runs() -> None:
    curves = {"a": np.array([[0.0, 4.0], [2.0, 8.0]]), "b": np.array([[10.0, 10.0], [10.0, 30.0], [40.0, 20.0]])}
    found = Runs("X", curves).mean_curve(np.arange(2))
    assert found.values.tolist() == [(1 + 20) / 2, (6 + 20) / 2]
    first = Runs("X", {d: c[:, 0] for d, c in curves.items()}).aggregate("mean").interval
    assert found.low is not None
    assert found.high is not None
    assert (found.low[0], found.high[0]) == pytest.approx(first)


def test_resamples_are_those_that_intervals_over_seeds_had_before() -> None:
    values = np.array([[1.0], [5.0], [6.0]])
    drawn = resamples(3, "bootstrap over seeds") @ values[:, 0] / 3
    low, high = bootstrap_interval(values)
    assert (low[0], high[0]) == tuple(np.quantile(drawn, [0.025, 0.975]))
