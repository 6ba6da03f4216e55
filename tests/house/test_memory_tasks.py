"""The benchmark's tasks that need memory: what is shown, what is paid, and what who does not remember can reach."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from d3ray.algos.environments.evaluate import evaluate

FILE = Path(__file__).parents[2] / "benchmarks" / "memory_tasks.py"


@pytest.fixture(scope="module")
def tasks() -> Any:
    spec = importlib.util.spec_from_file_location("memory_tasks", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_walk_through_the_maze(tasks: Any) -> None:
    """Against a wall, forward through the corridor, against the wall at the junction, and to one side or the other."""
    turned: dict[tuple[float, int], float] = {}
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


def test_who_remembers_scores_one_and_who_does_not_about_nothing(tasks: Any) -> None:
    assert evaluate(tasks.Guided(), "TMaze-v0", episodes=100, n_envs=20).mean == 1
    found = [evaluate(tasks.Turned(action), "TMaze-v0", episodes=100, n_envs=20).mean for action in (tasks.LEFT, tasks.RIGHT)]
    assert sum(found) == pytest.approx(0)
    assert max(found) == pytest.approx(0.1)  # as the learning table says of its episodes
    assert evaluate(tasks.Turned(tasks.FORWARD), "TMaze-v0", episodes=5).mean == pytest.approx(-0.05 * (40 - tasks.CORRIDOR))


def test_positions_are_cartpoles_without_velocities(tasks: Any) -> None:
    whole, part = gymnasium.make("CartPole-v1"), tasks.positions()
    seen, _ = whole.reset(seed=4)
    shown, _ = part.reset(seed=4)
    for action in (0, 1, 1, 0):
        np.testing.assert_array_equal(shown, seen[[0, 2]])
        assert part.observation_space.contains(shown)
        (seen, *_), (shown, *_) = whole.step(action), part.step(action)


def test_the_data_are_of_who_remembers_and_wanders(tasks: Any) -> None:
    data = tasks.t_maze_data(1_000)
    assert 0.5 < data.episodes.returns.mean() < 1
    assert data.episodes.returns.min() < 0
