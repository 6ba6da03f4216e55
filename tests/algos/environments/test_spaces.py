"""Environments of every space: what is collected is what they showed, and what algorithms make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from d3ray import BC, DQN, DiscreteBC
from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.explorers import EpsilonGreedy, GaussianNoise, random_actions
from d3ray.algos.environments.make import make, spec_of
from d3ray.algos.export.package import read_package
from d3ray.algos.networks.perceptrons import Flat, vector_size
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from d3ray.platform.settings.evaluation import check_spaces

SHOWN = spaces.Dict(
    {
        "camera": spaces.Tuple((spaces.Box(0, 255, (3, 4, 5), np.uint8), spaces.Box(0, 255, (4, 5, 3), np.uint8))),
        "mode": spaces.Discrete(3, start=-1),
        "gears": spaces.MultiDiscrete([2, 5], start=[1, 0]),
        "flags": spaces.MultiBinary((2, 2)),
        "speed": spaces.Box(-1, 1, (2,), np.float64),
    }
)
TAKEN: list[Any] = [
    spaces.Discrete(4, start=2),
    spaces.MultiDiscrete([3, 4], start=[1, -1]),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.Box(-3, 3, (2,), np.int16),
]


class Recorder(gymnasium.Env[Any, Any]):
    """Shows samples, episodes of five steps; keeps what it showed and took, as gymnasium has them."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.shown: list[Any] = []
        self.took: list[Any] = []

    def _show(self) -> Any:
        self.shown.append(self.observation_space.sample())
        return self.shown[-1]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.observation_space.seed(seed)
        self.t = 0
        return self._show(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(np.int64(action) if isinstance(action, int) else action), action
        self.took.append(action)
        self.t += 1
        return self._show(), 1.0, self.t == 5, False, {}


def test_spaces_are_told_as_they_are() -> None:
    spec = spec_of(Recorder(SHOWN, TAKEN[2]))
    assert spec.action == MultiDiscrete(nvec=(2, 3, 4, 5))
    assert isinstance(spec.observation, Dict)
    assert spec.observation.spaces == {
        "camera": Tuple(
            spaces=(
                Box(shape=(3, 4, 5), dtype="uint8", low=0.0, high=255.0),
                Box(shape=(4, 5, 3), dtype="uint8", low=0.0, high=255.0),
            )
        ),
        "mode": Discrete(n=3, start=-1),
        "gears": MultiDiscrete(nvec=(2, 5), start=(1, 0)),
        "flags": MultiBinary(n=4),
        "speed": Box(shape=(2,), low=-1.0, high=1.0),
    }


@pytest.mark.parametrize("taken", TAKEN, ids=str)
def test_what_is_collected_is_what_was_shown_and_taken(taken: Any) -> None:
    environment = Recorder(SHOWN, taken)
    dataset = collect(environment, n_steps=12, seed=3)
    columns = dataset.columns
    seen = environment.shown[isinstance(taken, spaces.Discrete) :]  # the first reset looks whether there is a mask of legal actions
    assert len(seen) == dataset.n_transitions + dataset.n_episodes == 15
    for row, shown in enumerate(seen):
        for k in (0, 1):
            np.testing.assert_array_equal(columns[f"observation/camera/{k}"][row], shown["camera"][k])
        assert columns["observation/mode"][row] == shown["mode"]
        np.testing.assert_array_equal(columns["observation/gears"][row], shown["gears"])
        np.testing.assert_array_equal(columns["observation/flags"][row], shown["flags"].reshape(-1))
        np.testing.assert_array_equal(columns["observation/speed"][row], shown["speed"].astype(np.float32))
    for action, took in zip(columns["action"][~columns["closing"]], environment.took, strict=True):
        if isinstance(dataset.spec.action, Box):
            np.testing.assert_allclose(
                np.rint(action) if taken.dtype == np.int16 else action, took, atol=1.0 if taken.dtype == np.int16 else 0
            )
        else:
            np.testing.assert_array_equal(np.reshape(action, -1), np.reshape(took, -1))


def test_random_actions_reach_every_kind() -> None:
    drawn = np.concatenate([random_actions(MultiDiscrete(nvec=(2, 7)), 8, step=k, seed=0) for k in range(300)])
    assert drawn.dtype == np.int64
    assert np.unique(drawn[:, 0], return_counts=True)[1] == pytest.approx([1200, 1200], rel=0.1)
    assert np.unique(drawn[:, 1], return_counts=True)[1] == pytest.approx([2400 / 7] * 7, rel=0.2)
    bits = np.concatenate([random_actions(MultiBinary(n=3), 8, step=k, seed=0) for k in range(300)])
    assert bits.dtype == np.uint8
    assert bits.mean(0) == pytest.approx([0.5] * 3, abs=0.05)
    explored = EpsilonGreedy(start=1.0, end=1.0).explore(np.zeros((8, 3), np.uint8), MultiBinary(n=3), step=0, seed=0)
    assert explored.dtype == np.uint8
    with pytest.raises(ConfigError, match="needs continuous actions"):
        GaussianNoise().explore(np.zeros((1, 2)), MultiDiscrete(nvec=(2, 7)), step=0, seed=0)


@pytest.mark.parametrize(("taken", "kind"), [(TAKEN[1], "multi-discrete"), (TAKEN[3], "binary")])
def test_algorithms_refuse_actions_that_they_cannot_use(taken: Any, kind: str) -> None:
    dataset = collect(Recorder(spaces.Box(-1, 1, (2,)), taken), n_steps=10, name="log")
    for algorithm in (BC(), DiscreteBC(), DQN()):
        with pytest.raises(DataError, match=f"needs [a-z]+ actions, and 'log' has {kind} ones; no algorithm takes those yet."):
            algorithm.fit(dataset, n_steps=1)


def test_vectors_have_a_one_for_each_kind() -> None:
    space = Dict(
        spaces={"b": Discrete(n=3), "a": MultiDiscrete(nvec=(2, 3)), "c": Tuple(spaces=(MultiBinary(n=2), Box(shape=(1, 2))))}
    )
    assert vector_size(space) == 3 + 5 + 2 + 2
    flat = Flat(space)(
        {
            "b": torch.tensor([2.0, 0.0]),
            "a": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
            "c/0": torch.tensor([[1.0, 0.0], [1.0, 1.0]]),
            "c/1": torch.tensor([[[0.5, 0.6]], [[0.7, 0.8]]]),
        }
    )
    expected = [[0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0.5, 0.6], [1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0.7, 0.8]]
    np.testing.assert_allclose(flat.numpy(), expected, rtol=1e-6)


def learned() -> tuple[DiscreteBC, dict[str, Any]]:
    """The action that paid is a function of the mode that was shown: cloning finds it only if modes are told apart."""
    rng = np.random.default_rng(0)
    mode, speed = rng.integers(0, 3, 300), rng.normal(size=(300, 2)).astype(np.float32)
    dataset = Dataset.from_arrays({"mode": mode, "arm": (speed, speed)}, mode * 2 % 3, np.zeros(300), np.ones(300, bool))
    algorithm = DiscreteBC(learning_rate=1e-2, batch_size=64)
    algorithm.fit(dataset, n_steps=150, n_steps_per_epoch=150)
    return algorithm, {"mode": np.array([0, 1, 2]), "arm": (speed[:3], speed[:3])}


def test_a_nested_observation_is_learned_from() -> None:
    algorithm, seen = learned()
    assert algorithm.predict(seen).tolist() == [0, 2, 1]
    with pytest.raises(DataError, match=r"a mapping with the keys \['arm/0', 'arm/1', 'mode'\], not the keys \['mode'\]"):
        algorithm.predict({"mode": np.array([0])})


@pytest.mark.slow
def test_a_nested_observation_is_exported(tmp_path: Path) -> None:
    algorithm, seen = learned()
    algorithm.save_policy(tmp_path / "policy")
    assert read_package(tmp_path / "policy").predict(seen).tolist() == [0, 2, 1]


def test_a_discrete_observation_is_learned_from_online() -> None:
    algorithm = DQN(batch_size=8)
    algorithm.fit_online(make("FrozenLake-v1"), n_steps=40)
    assert algorithm.predict(np.arange(16)).shape == (16,)


def test_a_classic_observation_may_be_a_pair_of_something_and_a_dict() -> None:
    """Which is what newer resets give: an observation and an info."""

    class Classic:
        observation_space: Any = spaces.Tuple((spaces.Discrete(3), spaces.Dict({"a": spaces.Discrete(2)})))
        action_space: Any = spaces.Discrete(2)

        def __init__(self, *, info: bool) -> None:
            self.info = info

        def reset(self) -> Any:
            shown = (2, {"a": 1})
            return (shown, {"is": "info"}) if self.info else shown

        def step(self, action: int) -> Any:
            return (0, {"a": 0}), float(action), True, {}

    for info in (False, True):
        environment = make(Classic(info=info))
        assert {name: array.tolist() for name, array in environment.reset().items()} == {"0": [2], "1/a": [1]}
        result = environment.step(np.array([1]))
        assert {name: array.tolist() for name, array in result.observation.items()} == {"0": [0], "1/a": [0]}


def test_a_policy_is_not_played_in_spaces_of_other_kinds() -> None:
    rng = np.random.default_rng(0)
    dataset = Dataset.from_arrays(
        {"a": (rng.normal(size=(4, 2)), np.arange(4))}, [0, 1, 0, 1], np.zeros(4), [0, 1, 0, 1], name="log"
    )
    other = dataset.spec.model_copy(update={"observation": Dict(spaces={"a": Tuple(spaces=(Box(shape=(2,)), Discrete(n=5)))})})
    check_spaces(dataset, dataset.spec, "Same-v0")
    with pytest.raises(
        ConfigError, match=r"'log' has observations of \{a/0: \[2\], a/1: 4 kinds\}, and Other-v0 has \{a/0: \[2\], a/1: 5"
    ):
        check_spaces(dataset, other, "Other-v0")
