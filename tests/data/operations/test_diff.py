"""What differs between datasets, and where."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.storage.steps import StepTable

from .derived import walk


def test_diff_says_what_and_where(place: Callable[[Dataset], Dataset]) -> None:
    plain = walk(300)
    table = plain.to_steps()
    columns = {name: column.copy() for name, column in table.columns.items()}
    rows = plain.episodes.first_row[[4, 9]] + [0, 1]
    columns["reward"][rows] += [0.5, 2]
    columns["observation"][rows[1], 2] = 7
    other = Dataset.from_steps(
        StepTable(columns, table.first_row, table.steps, table.terminated, table.final_recorded), name="other"
    )
    a, b = place(plain), place(other)
    found = a.diff(b)
    assert not found.same
    assert found.names == ("dataset", "other")
    assert (found.counts, found.kinds, found.spec, found.environment) == ({}, {}, {}, None)
    assert [c.column for c in found.columns] == ["observation", "reward"]
    reward = found.columns[1]
    assert (reward.rows, reward.of, reward.row, reward.episode, reward.step) == (2, a.n_rows, rows[0], (4, 4), (0, 0))
    assert reward.largest == pytest.approx(2, rel=1e-5)
    assert reward.values == (float(plain.columns["reward"][rows[0]]), float(columns["reward"][rows[0]]))
    assert (found.columns[0].episode, found.columns[0].step) == ((9, 9), (1, 1))
    assert "reward.mean" in found.statistics
    again = a.diff(place(plain))
    assert again.same
    assert (again.columns, again.statistics, again.counts) == ((), {}, {})
    short = a.diff(a.take(5))
    assert short.counts["episodes"] == (a.n_episodes, 5)
    assert short.columns == ()
    assert not short.same
    shifted = a.diff(a.take(np.arange(1, a.n_episodes)))
    assert {c.column for c in shifted.columns} >= {"observation", "action", "reward"}
    assert shifted.columns[0].row == 0
    assert a.diff(walk(300, discrete=True)).kinds == {"action": ("float32 [2]", "int64 []")}
