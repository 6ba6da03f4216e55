"""Bands around a trusted run's numbers, and what is said of other runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from d3ray.data.errors import ConfigError
from d3ray.platform.benchmark.bands import Band, Bands
from d3ray.platform.benchmark.gate import read_bands

PROTOCOL = {"suite": "gate", "n_steps": 100}
RETURN, ERROR = "evaluation/return", "train/td_error"


def values(
    score: float = 0.0, error: float = 1.0, n: int = 10, seed: int = 0, scatter: float = 1.0
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """One cell whose seeds scatter around means."""
    rng = np.random.default_rng(seed)
    return {
        "data": {
            "DQN": {
                RETURN: list(score + scatter * rng.standard_normal(n)),
                ERROR: list(error + 0.1 * rng.standard_normal(n)),
                "time/epoch": [1.0] * n,
            }
        }
    }


def p_value(found: list[float], end: float | None, alternative: str) -> float:
    """SciPy's one-sample t-test."""
    return float(stats.ttest_1samp(found, end, alternative=alternative).pvalue)


def test_a_band_by_hand() -> None:
    """Seeds 1, 2, 3: mean 2, deviation 1; for two seeds at α = 0.25 the quantile of Student's t with one degree is 1."""
    band = Band.around([1.0, 2.0, 3.0], 2, 0.25)
    reach = 5 * math.sqrt(1 / 3 + 1 / 2) + 1.5 / math.sqrt(2)
    assert (band.mean, band.deviation, band.seeds) == (2.0, 1.0, 3)
    assert band.low == pytest.approx(2 - reach)
    assert band.high == pytest.approx(2 + reach)
    assert Band.around([1.0, 2.0, 3.0], 2, 0.25, open_above=True).high is None


def test_chance_is_the_lower_end_where_seeds_scatter_beyond_it() -> None:
    """Seeds 0, 2, 4, and two at α = 0.25: mean 2, deviation 2, t 1; a run keeps above 2 - 2 (3 √(1/3 + 1/2) + 1/√2) = -4.89."""
    scattered, kept = [0.0, 2.0, 4.0], 2 - 2 * (3 * math.sqrt(5 / 6) + 1 / math.sqrt(2))
    wide = Band.around(scattered, 2, 0.25, open_above=True)
    assert wide.low == pytest.approx(2 - 2 * (5 * math.sqrt(5 / 6) + 1.5 / math.sqrt(2)))  # -9.25
    assert Band.around(scattered, 2, 0.25, chance=-5.0).low == -5.0
    assert Band.around(scattered, 2, 0.25, chance=kept + 0.01).low == wide.low  # so near that a clean run may come to it
    assert Band.around(scattered, 2, 0.25, chance=-20.0).low == wide.low  # below the band already
    bands = Bands.around(values(n=20), PROTOCOL, 10, chance={"data": -2.0})
    assert (bands.cells["data"]["DQN"][RETURN].chance, bands.cells["data"]["DQN"][ERROR].chance) == (-2.0, None)


def test_cartpoles_score_cannot_fall_to_what_random_actions_return() -> None:
    """Trusted seeds scatter so much that twice their mean below it would pass. The worse action drops the pole in 9 steps or so."""
    band = read_bands("gate").cells["d3ray/cartpole-replay"]["DQN"][RETURN]
    assert band.chance is not None
    assert band.low == band.chance == pytest.approx(22.5, abs=3.0)
    bands = Bands(protocol={}, seeds=10, cells={"data": {"DQN": {RETURN: band}}})

    def passes(found: list[float]) -> bool:
        return all(one.passes for one in bands.judge({"data": {"DQN": {RETURN: found}}}))

    assert not passes([9.2, 9.6, 9.4, 9.0, 9.4, 9.8, 9.6, 9.2, 9.4, 9.4])
    assert not passes([22.0, 19.0, 25.0, 31.0, 18.0, 24.0, 20.0, 22.0, 26.0, 21.0])  # no better than chance
    rng = np.random.default_rng(0)
    clean = [passes(list((band.mean + band.deviation * rng.standard_normal(10)).clip(9, 500))) for _ in range(1000)]
    assert sum(clean) >= 995


def test_the_test_is_two_one_sided_t_tests() -> None:
    """A run passes exactly where SciPy rejects at α, in two tests, that its mean lies at or beyond an end."""
    bands = Bands.around(values(n=20), PROTOCOL, 10)
    band = bands.cells["data"]["DQN"][ERROR]
    seen = set[str]()
    for k, error in enumerate(np.linspace(0.4, 1.6, 60)):
        run = values(error=float(error), seed=100 + k)
        verdict = next(one for one in bands.judge(run) if one.metric == ERROR)
        found = run["data"]["DQN"][ERROR]
        above = p_value(found, band.low, "greater") < 0.05
        below = p_value(found, band.high, "less") < 0.05
        assert verdict.passes == (above and below)
        assert verdict.mean == pytest.approx(np.mean(found))
        seen.add(verdict.reason)
    assert seen == {
        "",
        "lies below the band",
        "lies above the band",
        "is not shown to lie above the band's lower end",
        "is not shown to lie below the band's upper end",
    }


def test_clean_repeats_pass_and_shifted_ones_do_not() -> None:
    """A thousand runs of the same code, and runs that lie four deviations lower."""
    bands = Bands.around(values(n=20), PROTOCOL, 10)
    clean = [all(one.passes for one in bands.judge(values(seed=k))) for k in range(1, 1001)]
    assert sum(clean) >= 999
    faulty = [all(one.passes for one in bands.judge(values(score=-4.0, seed=k))) for k in range(1, 201)]
    assert sum(faulty) == 0


def test_a_better_score_is_no_fault_and_a_smaller_error_may_be_one() -> None:
    bands = Bands.around(values(n=20), PROTOCOL, 10)
    reasons = {one.metric: one.reason for one in bands.judge(values(score=50.0, error=0.1))}
    assert reasons == {RETURN: "", ERROR: "lies below the band"}


def test_what_is_missing_does_not_pass() -> None:
    bands = Bands.around(values(n=20), PROTOCOL, 10)
    assert [one.reason for one in bands.judge({})] == ["0 of 10 seeds have it"] * 2
    few = values(n=9)
    assert {one.reason for one in bands.judge(few)} == {"9 of 10 seeds have it"}
    lost = values()
    lost["data"]["DQN"][ERROR][3] = math.nan
    assert {one.metric: one.reason for one in bands.judge(lost)}[ERROR] == "a seed has a value that is not finite"


def test_bands_are_for_a_protocol_and_for_cells() -> None:
    bands = Bands.around(values(n=20), PROTOCOL, 10)
    bands.check_protocol(PROTOCOL)
    with pytest.raises(ConfigError, match="another protocol: n_steps is 200, and was 100"):
        bands.check_protocol({**PROTOCOL, "n_steps": 200})
    with pytest.raises(ConfigError, match="no cell 'DQM on data'; did you mean 'DQN on data'"):
        bands.judge({"data": {"DQM": {RETURN: [1.0]}}})
    with pytest.raises(ConfigError, match="no two finite values of evaluation/return"):
        Bands.around(values(n=1), PROTOCOL, 10)
    with pytest.raises(ConfigError, match="no band"):
        Bands.checked({"protocol": {}, "seeds": 2, "cells": {}})
