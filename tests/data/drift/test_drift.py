"""Drift beside cases worked by hand, scipy, all permutations, and worlds that did not change."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import ks_2samp

from d3ray import Dataset
from d3ray.data.drift import drift
from d3ray.data.drift.compare import NEAREST
from d3ray.data.drift.nearest import Nearest
from d3ray.data.drift.two_samples import compare, distance, occurrences
from d3ray.data.errors import DataError


def walks(seed: int, episodes: int, steps: int = 50, shift: float = 0.0) -> Dataset:
    """Slow walks: steps of one episode resemble each other. `shift` moves entry 0 of what is seen."""
    rng = np.random.default_rng(seed)
    at = rng.standard_normal((episodes, 3)) * 1.4
    seen = []
    for _ in range(steps):
        seen.append(at + np.array([shift, 0, 0]))
        at = 0.95 * at + 0.3 * rng.standard_normal(at.shape)
    rows = np.stack(seen, 1).reshape(-1, 3).astype(np.float32)
    cut = np.arange(len(rows)) % steps == steps - 1
    return Dataset.from_arrays(
        rows, rng.integers(0, 3, len(rows)), rows[:, 1], np.zeros(len(rows), bool), cut, name=f"walks-{seed}"
    )


def counted(old: np.ndarray, new: np.ndarray, *, kinds: bool = False) -> tuple[np.ndarray, int]:
    """Counts of values that are an episode each, and how many are old."""
    values = np.r_[old, new].astype(float)
    return occurrences(values, np.arange(len(values)), len(values), kinds=kinds), len(old)


def test_distances_are_those_worked_by_hand_and_scipys() -> None:
    counts, n = counted(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1]), kinds=True)
    assert distance(counts[n:].sum(0), counts[:n].sum(0), kinds=True) == pytest.approx((1 / 4 + 2 / 4 + 1 / 4) / 2)
    rng = np.random.default_rng(0)
    old, new = rng.integers(0, 20, 30), rng.integers(5, 25, 25)  # fewer numbers than bins: the statistic is exact
    counts, n = counted(old, new)
    assert distance(counts[n:].sum(0), counts[:n].sum(0), kinds=False) == pytest.approx(ks_2samp(old, new).statistic)


def test_p_is_the_share_of_all_permutations() -> None:
    old, new = np.array([0.1, 0.4, 0.5, 0.9, 1.1]), np.array([0.8, 1.0, 1.2, 1.3])
    counts, n = counted(old, new)
    everything = np.r_[old, new]
    observed = ks_2samp(old, new).statistic
    chosen = [np.isin(np.arange(9), some) for some in combinations(range(9), 4)]
    exact = np.mean([ks_2samp(everything[~some], everything[some]).statistic >= observed - 1e-9 for some in chosen])
    found, p = compare([counts], [False], n, times=4_000)
    assert found[0] == pytest.approx(observed)
    assert p[0] == pytest.approx(exact, abs=0.02)


def test_a_world_that_did_not_change_is_seldom_said_to_have() -> None:
    old_worlds, new_worlds = ([walks(k + first, n) for k in range(40)] for first, n in ((0, 40), (1_000, 20)))
    alarms = sum(bool(drift(old, new).changed(0.05, 0.0)) for old, new in zip(old_worlds, new_worlds, strict=True))
    naive = sum(
        ks_2samp(old.columns["observation"][:, 0], new.columns["observation"][:, 0]).pvalue < 0.05
        for old, new in zip(old_worlds, new_worlds, strict=True)
    )
    assert alarms <= 7  # 2 are expected of 40, and more than 7 in one of 1,500 tries
    assert naive >= 20  # what takes steps for independent alarms in most of them, by one column alone


def test_a_world_that_changed_is_found_by_the_column_that_did() -> None:
    found = drift(walks(1, 60), walks(2, 40, shift=2.0))
    assert {column.name for column in found.changed()} >= {"observation[0]", "first observation[0]"}
    assert "observation[2]" not in {column.name for column in found.changed()}
    assert found["observation[0]"].new - found["observation[0]"].old == pytest.approx(2.0, abs=0.7)
    assert found[NEAREST].new > found[NEAREST].old


def test_what_lies_outside_is_counted() -> None:
    old, rows = walks(3, 20), np.zeros((100, 3), np.float32)
    rows[:25, 2], rows[25:30, 2] = 1e6, -1e6
    cut = np.arange(100) % 10 == 9
    told = Dataset.from_arrays(rows, np.zeros(100, np.int64), rows[:, 1], np.zeros(100, bool), cut, spec=old.spec)
    assert drift(old, told)["observation[2]"].outside == pytest.approx(0.3)


def test_the_nearest_is_scipys() -> None:
    rng = np.random.default_rng(0)
    seen, asked = rng.standard_normal((300, 4)) * [1, 10, 0.1, 0], rng.standard_normal((50, 4))
    scale = np.array([*seen.std(0)[:3], 1.0])
    slow = cdist(asked / scale, seen / scale).min(1) / 2
    np.testing.assert_allclose(Nearest(seen)(asked), slow, rtol=1e-4)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(DataError, match="'walks-1' has 5 episodes; at least 8"):
        drift(walks(0, 20), walks(1, 5))
    other = Dataset.from_arrays(np.zeros((20, 2)), np.zeros(20, np.int64), np.zeros(20), np.ones(20, bool), name="narrow")
    with pytest.raises(DataError, match="'narrow' shows other observations"):
        drift(walks(0, 20), other)
