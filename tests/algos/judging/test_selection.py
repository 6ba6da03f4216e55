"""Measures of a choice among policies, beside SciPy's and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from d3ray.algos.judging.selection import select
from d3ray.data.errors import DataError


def test_regret_and_errors_by_hand() -> None:
    truth, found = np.array([1.0, 5, 3, 4, 2]), np.array([9.0, 2, 7, 8, 1])
    chosen = select(found, truth, ks=(1, 2, 3, 4, 9), threshold=3)
    assert chosen.shortfall == {1: 4, 2: 1, 3: 1, 4: 0}  # 9 → 1, 8 → 4, 7 → 3, 2 → 5
    assert chosen.regret == {1: 4, 2: 9 - 5, 3: 12 - 8, 4: 14 - 13}
    assert chosen.type_one == 1 / 3  # of 5, 3 and 4 the first is estimated at 2
    assert chosen.type_two == 1 / 2  # of 1 and 2 the first is estimated at 9
    assert select(found, truth, threshold=0).type_two is None  # none is unsafe


def test_the_rank_correlation_is_scipys_with_ties() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        found, truth = rng.integers(0, 5, (2, 12)).astype(float)
        chosen = select(found, truth)
        assert chosen.rank_correlation == pytest.approx(scipy.stats.spearmanr(found, truth).statistic, rel=1e-12)


def test_its_interval_is_that_of_all_resamples() -> None:
    found, truth = np.array([1.0, 2, 4, 3]), np.array([2.0, 1, 3, 4])
    every = []
    for drawn in itertools.product(range(4), repeat=4):
        which = list(drawn)
        if len(set(which)) > 1:
            every.append(np.corrcoef(scipy.stats.rankdata(found[which]), scipy.stats.rankdata(truth[which]))[0, 1])
    chosen = select(found, truth)
    assert chosen.rank_correlation == pytest.approx(0.6)
    assert chosen.interval == pytest.approx(tuple(np.quantile(every, [0.025, 0.975])), abs=0.05)


def test_what_says_nothing_is_none_or_refused() -> None:
    assert select(np.ones(4), np.arange(4.0)).rank_correlation is None
    with pytest.raises(DataError, match="of 3 or more; these are"):
        select(np.ones(2), np.ones(2))
    with pytest.raises(DataError, match="estimates is nan for policy 1; leave out policies without an estimate"):
        select(np.array([1.0, np.nan, 2.0]), np.ones(3))
