"""OGBench's environments: by which names they are had, that an episode follows from its seed, and what success is."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from d3ray.algos.environments.evaluate import EnvironmentEvaluator, evaluate
from d3ray.algos.environments.make import environment_of, make
from d3ray.algos.environments.ogbench import is_ogbench
from d3ray.algos.environments.vector import VectorEnvironment
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Environment, Goals

MAZE = "pointmaze-medium-navigate-singletask-task3-v0"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("cube-single-play-singletask-task2-v0", True),
        ("visual-scene-v0", True),
        ("scene-play-v0", True),
        ("humanoidmaze-large-v0", True),
        ("antsoccer-arena-navigate-singletask-v0", True),
        ("visual-antmaze-giant-explore-v0", True),
        ("powderworld-easy-play-v0", True),
        ("antmaze-medium-play-v2", False),  # D4RL's
        ("antmaze-medium-play-v0", False),
        ("antmaze-umaze-v0", False),
        ("CubeWorld-v0", False),
    ],
)
def test_its_names_are_told(name: str, is_one: bool) -> None:
    assert is_ogbench(name) == is_one


def test_other_tasks_than_a_single_tasks_own_are_refused() -> None:
    pytest.importorskip("ogbench")
    with make(Environment(id=MAZE, goals=Goals(tasks=(2,)))) as vector:
        with pytest.raises(ConfigError, match="The task is 2; this environment of OGBench is of task 3 alone"):
            vector.reset([0], options=[{"task_id": 2}])
        vector.reset([0], options=[{"task_id": 3}])


def test_the_nearest_of_its_names_is_said() -> None:
    pytest.importorskip("ogbench")
    with pytest.raises(ConfigError, match="did you mean 'pointmaze-"):
        make("pointmaze-medum-v0")


def test_where_it_is_missing_one_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import gymnasium

    for name in [name for name in gymnasium.registry if name.startswith("pointmaze-medium")]:
        monkeypatch.delitem(gymnasium.registry, name)
    monkeypatch.setitem(sys.modules, "ogbench", None)
    with pytest.raises(ConfigError, match=rf"^{MAZE} needs a package that is missing: .*; pip install 'd3ray\[ogbench\]' brings"):
        make(MAZE)


class Waypoints:
    """Goes straight to the next cell on the way to the goal, as OGBench's own script for its points does."""

    def __init__(self, vector: VectorEnvironment) -> None:
        self.vector = vector

    def start(self, n: int) -> None:
        return None

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        return None, np.stack([self._towards(one.unwrapped) for one in self.vector.environments[: len(observation)]])

    @staticmethod
    def _towards(maze: Any) -> np.ndarray:
        here = maze.get_xy()
        way = maze.get_oracle_subgoal(here, maze.cur_goal_xy)[0] - here
        return way / (np.linalg.norm(way) + 1e-6)


def test_a_maze_is_solved_by_its_waypoints_and_not_by_standing_still() -> None:
    pytest.importorskip("ogbench")
    with make(MAZE, n=2) as vector:
        assert vector.spec.observation.shape == (2,)
        assert environment_of(vector.single) == Environment(id="pointmaze-medium-singletask-task3-v0")
        solved = evaluate(Waypoints(vector), vector, episodes=3, n_envs=2)
        assert solved.success == 1
        assert (solved.returns == 1 - solved.lengths).all()  # -1 a step, and 0 at the last, which begins at the goal

        class Algorithm:
            def policy(self) -> Waypoints:
                return Waypoints(vector)

        assert EnvironmentEvaluator(vector, episodes=2)(Algorithm(), 1)["success"] == 1
        cut = evaluate(Waypoints(vector), vector, episodes=2, max_steps=5)
        assert cut.success == 0


@pytest.mark.parametrize("name", [MAZE, "cube-single-play-singletask-task2-v0", "pointmaze-teleport-v0", "cube-single-v0"])
def test_an_episode_follows_from_its_seed(name: str) -> None:
    """Whatever was drawn before and beside it, from the generators that OGBench shares with everyone."""
    pytest.importorskip("ogbench")
    actions = np.random.default_rng(0).uniform(-1, 1, (8, 1, 5)).astype(np.float32)

    def played(vector: VectorEnvironment) -> np.ndarray:
        shown = [vector.reset(seeds=[4])]
        for action in actions:
            np.random.uniform()
            shown.append(vector.step(action[:, : vector.spec.action.shape[0]]).observation)
        return np.stack(shown)

    with make(name) as one, make(name) as other:
        first = played(one)
        for seed in (7, 8):
            other.reset(seeds=[seed])
            other.step(actions[0][:, : other.spec.action.shape[0]])
        np.testing.assert_array_equal(played(other), first)
        np.testing.assert_array_equal(played(one), first)


def test_numpys_own_generator_is_left_as_it_was() -> None:
    pytest.importorskip("ogbench")
    with make("pointmaze-medium-v0") as vector:
        np.random.seed(3)
        expected = np.random.uniform(size=4)
        np.random.seed(3)
        drawn = [np.random.uniform()]
        vector.reset()
        drawn.append(np.random.uniform())
        vector.reset(seeds=[5])
        vector.step(np.ones((1, 2)))
        assert [*drawn, np.random.uniform(), np.random.uniform()] == expected.tolist()


def test_there_are_five_tasks() -> None:
    pytest.importorskip("ogbench")
    with pytest.raises(
        ConfigError, match="five tasks in an environment, task1 to task5, and 'cube-single-play-singletask-task6-v0'"
    ):
        make("cube-single-play-singletask-task6-v0")
    with pytest.raises(ConfigError, match="The task is 6; this environment of OGBench has the tasks 1 to 5"):
        make(Environment(id="pointmaze-medium-v0", kwargs={"reward_task_id": 6}))
    with make("pointmaze-medium-v0") as vector, pytest.raises(ConfigError, match="The task is 0"):
        vector.single.reset(options={"task_id": 0})
