"""What the benchmarks compute by themselves: statistics against cases by hand, tasks that need memory, tables."""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.registry import make_algorithm

from .source_tree import ROOT

LEAST = {"learning": 100, "fidelity": 80, "speed": 50}  # rows


@pytest.fixture(scope="module")
def load() -> Any:
    """A file of theirs by name: they find each other by the folder."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


# ---- statistics


def test_welch_one_sided(load: Any):
    # means 3 and 6, variances 2.5 and 10: t = -3 / √(2.5/5 + 10/5) = -1.8974, 2.5² / (0.5²/4 + 2²/4) = 5.8824 degrees of freedom
    below, a, b = load("significance").below, [1, 2, 3, 4, 5], [2, 4, 6, 8, 10]
    assert below(a, b) == pytest.approx(0.1075 / 2, abs=5e-5)
    assert below(b, a) == pytest.approx(1 - 0.1075 / 2, abs=5e-5)
    assert (below([1.0, 1.0], [2.0, 2.0]), below([2.0, 2.0], [2.0, 2.0])) == (0, 1)  # without spread they are compared as they are


def test_difference(load: Any):
    # as above: the standard error is √2.5, and Student's t for 5.8824 degrees of freedom lies between 2.4469 (6) and 2.5706 (5)
    difference = load("significance").difference
    apart, half = difference([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    assert apart == -3
    assert 2.4469 * 2.5**0.5 < half < 2.5706 * 2.5**0.5
    assert half == pytest.approx(2.4587 * 2.5**0.5, abs=2e-3)
    assert difference([2.0, 2.0], [5.0, 5.0]) == (-3, 0)
    assert math.isnan(difference([2.0], [5.0, 6.0])[1])


def test_holm_and_student(load: Any):
    # 3 × 0.01, 2 × 0.03, then 1 × 0.04, which may not lie below the one before it
    significance = load("significance")
    assert significance.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert significance.holm([0.5, 0.9]) == [1.0, 1.0]
    mean, half = significance.interval([1, 2, 3, 4, 5])
    assert (mean, half) == (3, pytest.approx(2.7764 * 2.5**0.5 / 5**0.5, abs=1e-4))  # Student's t for 4 degrees of freedom


# ---- tables of data


def test_every_row_of_the_tables_is_whole(load: Any):
    """Its algorithm takes its settings, and what it names is there."""
    learning, fidelity, speed = (load(name) for name in LEAST)
    tables = {"learning": learning.STUDIES, "fidelity": fidelity.rows(), "speed": speed.WORKS}
    assert all(len(tables[name]) >= least for name, least in LEAST.items())
    for study in learning.STUDIES.values():
        make_algorithm({key: value for key, value in study.algorithm.items() if key != "model"})
    for case in fidelity.rows():
        make_algorithm(dict(case.ours))
    for work in speed.WORKS.values():
        if work.algorithm:
            make_algorithm({key: value for key, value in work.settings().items() if key != "judged"})
    for row in learning.COMPARISONS:
        assert all(side in study.sides() for study, side in learning.sides(row))


def test_kept_cells_are_those_of_the_studies(load: Any):
    """So that none is trained again where a setting is renamed or a study edited, and the page is that of the cells."""
    learning = load("learning")
    pairs = {f"{study.name}-{side}": (study, side) for study in learning.STUDIES.values() for side in study.sides()}
    for name, cell in learning.CELLS.items():
        study, side = pairs[name.rpartition("-seed")[0]]
        assert learning.finished(study, side, cell["seed"]) is cell
    assert learning.markdown() == (ROOT / "benchmarks/results/learning.md").read_text()


# ---- tasks that need memory


def test_a_walk_through_the_maze(load: Any) -> None:
    """Against a wall, forward through the corridor, against the wall at the junction, and to one side or the other."""
    tasks, turned = load("tasks"), dict[tuple[float, int], float]()
    for seed in range(8):
        for action in (tasks.LEFT, tasks.RIGHT):
            maze = tasks.TMaze()
            (side, junction), _ = maze.reset(seed=seed)
            assert (abs(side), junction) == (1, 0)
            walked = [maze.step(tasks.LEFT), *(maze.step(tasks.FORWARD) for _ in range(8)), maze.step(action)]
            assert [reward for _, reward, *_ in walked[:-1]] == [-0.05, *[0.0] * 7, -0.05]
            assert [shown.tolist() for shown, *_ in walked[:-1]] == [[0, 0]] * 7 + [[0, 1]] * 2
            assert [over for *_, over, _, _ in walked] == [*[False] * 9, True]
            turned[side, action] = walked[-1][1]
    assert turned == {(-1, tasks.LEFT): 1, (-1, tasks.RIGHT): -1, (1, tasks.LEFT): -1, (1, tasks.RIGHT): 1}


def test_who_remembers_scores_one_and_who_does_not_about_nothing(load: Any) -> None:
    tasks = load("tasks")
    assert evaluate(tasks.Guided(), "TMaze-v0", episodes=100, n_envs=20).mean == 1
    found = [evaluate(tasks.Turned(action), "TMaze-v0", episodes=100, n_envs=20).mean for action in (tasks.LEFT, tasks.RIGHT)]
    assert sum(found) == pytest.approx(0)
    assert max(found) == pytest.approx(0.1)  # as the learning table says of its episodes
    assert evaluate(tasks.Turned(tasks.FORWARD), "TMaze-v0", episodes=5).mean == pytest.approx(-0.05 * (40 - tasks.CORRIDOR))
    data = tasks.t_maze_data(1_000)  # of who remembers and wanders
    assert 0.5 < data.episodes.returns.mean() < 1
    assert data.episodes.returns.min() < 0


def test_positions_are_cartpoles_without_velocities(load: Any) -> None:
    whole, part = gymnasium.make("CartPole-v1"), load("tasks").positions()
    seen, _ = whole.reset(seed=4)
    shown, _ = part.reset(seed=4)
    for action in (0, 1, 1, 0):
        np.testing.assert_array_equal(shown, seen[[0, 2]])
        assert part.observation_space.contains(shown)
        (seen, *_), (shown, *_) = whole.step(action), part.step(action)
