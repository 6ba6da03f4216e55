"""Collection: every step recorded, ends and final observations right, the same again for the same seed."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch

from d3ray.algos.environments.collect import collect, restarted
from d3ray.algos.environments.explorers import EpsilonGreedy, GaussianNoise
from d3ray.algos.environments.make import make
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Environment


class Walk(gymnasium.Env[Any, Any]):
    """Shows (own number, step); terminates after 3 + number steps, is truncated after 5; the reward is the step."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 99, (2,)), gymnasium.spaces.Discrete(3)
    made = 0

    def __init__(self) -> None:
        self.number, self.t = Walk.made, 0
        Walk.made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.array([self.number, 0], np.float32), {}

    def step(self, action: int) -> Any:
        self.t += 1
        return np.array([self.number, self.t], np.float32), float(self.t), self.t == 3 + self.number, self.t == 5, {}


@pytest.fixture(autouse=True)
def _count_from_zero() -> None:
    Walk.made = 0


def test_steps_are_recorded_with_their_ends_and_final_observations() -> None:
    dataset = collect(Walk, n_steps=19, n_envs=4)  # 5, 5, 5 and 4 steps of episodes of 3, 4, 5 (both ends at once) and 5 (cut)
    assert dataset.n_transitions == 19
    assert dataset.episodes.steps.tolist() == [3, 2, 4, 1, 5, 4]
    assert dataset.episodes.terminated.tolist() == [True, False, True, False, True, False]
    assert dataset.episodes.final_recorded.all()
    columns = dataset.columns
    last = np.flatnonzero(columns["closing"])
    assert columns["observation"][last].tolist() == [[0, 3], [0, 2], [1, 4], [1, 1], [2, 5], [3, 4]]
    assert columns["truncated"][last - 1].tolist() == [False, True, False, True, False, True]
    steps = ~columns["closing"]
    assert (columns["reward"][steps] == columns["observation"][steps, 1] + 1).all()  # the reward of that action, in its row
    assert dataset.environment is None
    assert dataset.spec.action.n == 3


def test_a_time_limit_is_a_truncation_with_its_final_observation() -> None:
    class Longer(Walk):
        def step(self, action: int) -> Any:
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, False, truncated, info

    dataset = collect(Longer, n_episodes=2)
    assert dataset.episodes.terminated.tolist() == [False, False]
    assert dataset.columns["observation"][dataset.columns["closing"], 1].tolist() == [5, 5]


def test_each_environment_plays_its_share_of_the_episodes() -> None:
    dataset = collect(Walk, n_episodes=5, n_envs=2)
    assert dataset.episodes.steps.tolist() == [3, 3, 3, 4, 4]


def test_a_vector_keeps_its_number_and_is_left_open() -> None:
    vector = make(Walk, n=2)
    assert collect(vector, n_steps=10).episodes.steps.tolist() == [3, 2, 4, 1]
    assert collect(vector, n_steps=10).provenance["collected"]["n_envs"] == 2


def test_a_dataset_knows_where_it_comes_from() -> None:
    dataset = collect(Environment(id="Pendulum-v1", kwargs={"g": 3.0}), n_steps=10, seed=4, explorer=GaussianNoise())
    assert dataset.environment == Environment(id="Pendulum-v1", kwargs={"g": 3.0})
    assert dataset.name == "Pendulum-v1-random"
    made = dataset.provenance["collected"]
    assert (made["policy"], made["seed"], made["n_steps"], made["n_envs"]) == ("uniform random", 4, 10, 1)
    assert made["explorer"] == GaussianNoise(std=0.1).model_dump()
    assert abs(dataset.columns["action"]).max() <= 2


def test_the_same_seed_gives_the_same_dataset_and_another_another() -> None:
    def columns(seed: int) -> Dataset:
        return collect("CartPole-v1", n_steps=60, seed=seed, n_envs=2)

    assert columns(1).fingerprint == columns(1).fingerprint
    assert columns(1).fingerprint != columns(2).fingerprint


def test_random_episodes_are_as_long_as_is_known_of_cartpole() -> None:
    assert 18 < collect("CartPole-v1", n_episodes=150, seed=0).n_transitions / 150 < 27  # 22 is the known mean


class Alternating:
    """Acts 0, 1, 2, 0, … from each episode's start."""

    def start(self, n: int) -> dict[str, Any]:
        return {"t": np.zeros(n, np.int64), "nothing": None}

    def step(self, state: dict[str, Any], observation: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
        assert (state["t"] == observation[:, 1]).all()  # the state of an environment that is reset starts anew, and no other
        return {"t": state["t"] + 1, "nothing": None}, state["t"] % 3


def test_a_policy_with_state_acts_from_each_episodes_start() -> None:
    dataset = collect(Walk, Alternating(), n_episodes=3)
    assert [episode.actions.tolist() for episode in dataset.episodes] == [[0, 1, 2]] * 3
    Walk.made = 0
    many = collect(Walk, Alternating(), n_steps=30, n_envs=3)
    for episode in many.episodes:
        assert episode.actions.tolist() == [t % 3 for t in range(len(episode))]
    assert many.provenance["collected"]["policy"] == "Alternating"


def test_restarting_leaves_other_rows_alone() -> None:
    class State(NamedTuple):
        hidden: torch.Tensor
        history: list[np.ndarray]

    old = State(torch.ones(3, 2), [np.ones(3)])
    new = restarted(old, State(torch.zeros(3, 2), [np.zeros(3)]), [1])
    assert isinstance(new, State)
    assert new.hidden[:, 0].tolist() == [1, 0, 1]
    assert new.history[0].tolist() == [1, 0, 1]
    assert old.hidden.min() == 1
    assert old.history[0].min() == 1


def test_an_explorer_changes_what_is_played_and_recorded() -> None:
    explored = collect(Walk, Alternating(), n_steps=300, explorer=EpsilonGreedy(start=0.3, end=0.3, duration=1))
    steps = ~explored.columns["closing"]
    changed = explored.columns["action"][steps] != explored.columns["observation"][steps, 1].astype(int) % 3
    assert 0.12 < changed.mean() < 0.28  # ε · 2/3


def test_progress_is_told_after_every_step() -> None:
    told: list[tuple[int, int]] = []
    collect(Walk, n_steps=5, n_envs=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(2, 5), (4, 5), (5, 5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either n_steps or n_episodes"),
        ({"n_steps": 3, "n_episodes": 3}, "either n_steps or n_episodes"),
        ({"n_steps": 3, "n_envs": 4}, "n_envs is 4"),
        ({"n_steps": 0}, "n_envs is 1"),
    ],
)
def test_unclear_amounts_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        collect(Walk, **arguments)
