"""Making environments: ids, configs, factories, objects, classic gym, and what is said when that fails."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from d3ray.algos.environments.make import environment_of, make, spec_of
from d3ray.data import spec as specs
from d3ray.data.errors import ConfigError


class Toy(gymnasium.Env[Any, Any]):
    """Shows what it is told to."""

    def __init__(self, observation_space: Any, action_space: Any = None) -> None:
        self.observation_space, self.action_space = observation_space, action_space or Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, False, {"action": action}


class OldToy:
    """An environment of gym 0.21: seed() apart, reset without info, a step of four, done after 2 steps or cut after 3."""

    observation_space = type("Box", (), {"low": np.array([-1.0]), "high": np.array([1.0]), "shape": (1,), "dtype": np.float64})()
    action_space = type("Discrete", (), {"n": 2, "shape": ()})()  # known by the names of their classes only

    def __init__(self, *, cut: bool) -> None:
        self.cut, self.t, self.seeds = cut, 0, []

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def reset(self) -> Any:
        self.t = 0
        return np.zeros(1)

    def step(self, action: int) -> Any:
        self.t += 1
        done = self.t == (3 if self.cut else 2)
        return np.full(1, self.t / 10), np.float64(1), done, {"TimeLimit.truncated": True} if self.cut and done else {}


class PassiveEnvChecker:
    """As in gym 0.26: asks NumPy for a name that NumPy 2 has not."""

    def __init__(self, env: Any) -> None:
        self.env, self.observation_space, self.action_space = env, env.observation_space, env.action_space

    def reset(self, **kwargs: Any) -> Any:
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        assert isinstance(result[2], (bool, np.bool8))
        return result


class Passing(PassiveEnvChecker):
    """Any other wrapper."""

    def step(self, action: Any) -> Any:
        return self.env.step(action)


def test_spec_has_bounds_only_where_every_one_is_finite() -> None:
    with make("CartPole-v1") as cart, make("Pendulum-v1") as pendulum:
        assert cart.spec == specs.Spec(observation=specs.Box(shape=(4,)), action=specs.Discrete(n=2))  # velocities are unbounded
        assert pendulum.spec.action == specs.Box(shape=(1,), low=-2.0, high=2.0)
        assert pendulum.spec.observation == specs.Box(shape=(3,), low=(-1.0, -1.0, -8.0), high=(1.0, 1.0, 8.0))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Box(0, 255, (2, 3), np.uint8), specs.Box(shape=(2, 3), dtype="uint8", low=0.0, high=255.0)),
        (Box(-np.inf, np.inf, (2,), np.float64), specs.Box(shape=(2,))),
        (Box(0, 1, ()), specs.Box(shape=(1,), low=0.0, high=1.0)),
        (Discrete(3, start=2), specs.Discrete(n=3, start=2)),
        (
            Dict({"a": Box(0, 1, (2,)), "b": Discrete(2)}),
            specs.Dict(spaces={"a": specs.Box(shape=(2,), low=0.0, high=1.0), "b": specs.Discrete(n=2)}),
        ),
    ],
)
def test_observation_spaces_are_kept_and_what_is_shown_fits_them(space: Any, expected: specs.Box | specs.Dict) -> None:
    vector = make(lambda: Toy(space), n=2)
    assert vector.spec.observation == expected
    shown = vector.reset(seeds=[0, 1])
    for name, leaf in specs.space_columns(expected).items():
        array = specs.value_columns(shown)[name]
        assert array.shape == (2, *leaf.shape)
        assert array.dtype == leaf.dtype


def test_discrete_observations_and_actions_count_as_the_environment_does() -> None:
    vector = make(lambda: Toy(Discrete(3, start=2), Discrete(4, start=-1)))
    for value in (2, 3, 4):
        vector.single.observation_space = SimpleNamespace(sample=lambda value=value: value)
        assert vector.reset().tolist() == [value]
    assert vector.spec.action == specs.Discrete(n=4, start=-1)
    assert vector.step(np.array([-1])).info[0]["action"] == -1


def test_spaces_that_cannot_be_recorded_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="Actions of kind Tuple cannot be recorded; d3ray takes Box, Discrete"):
        spec_of(Toy(Box(0, 1, (1,)), gymnasium.spaces.Tuple((Discrete(2),))))
    with pytest.raises(ConfigError, match="Observations of kind Text cannot be recorded"):
        spec_of(Toy(gymnasium.spaces.Tuple((Discrete(2), gymnasium.spaces.Text(3)))))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("CartPol-v1", "knows no environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        ("cartpole-v1", "did you mean 'CartPole-v1'?"),
        ("Pendulum-v7", "did you mean 'Pendulum-v1'?"),
        ("qqqq", "pprint_registry"),
        ("os:Thing-v0", "'os:Thing-v0' names a module"),
        ("Pendulum-v0", "gymnasium has 'Pendulum-v0' no longer; did you mean 'Pendulum-v1'?"),
        ("Hopper-v1", "gymnasium has 'Hopper-v1' no longer; did you mean 'Hopper-v5'?"),
        ("no id", "gymnasium cannot make 'no id': Malformed environment ID"),
        (specs.Environment(id="CartPole-v1", kwargs={"gravity": 3}), "CartPole-v1 does not take {'gravity': 3}"),
        (lambda: 3, "made no environment"),
        (7, "7 is no environment"),
    ],
)
def test_what_cannot_be_made_is_explained(wrong: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make(wrong)
    assert message in str(error.value)


@pytest.mark.skipif(find_spec("gymnasium_robotics") is not None, reason="the package is there")
def test_an_id_of_a_package_that_is_missing_names_the_extra() -> None:
    with pytest.raises(ConfigError, match=r"^AdroitHandDoor-v1 needs a package .*: pip install 'd3ray\[robotics\]' brings it"):
        make("AdroitHandDoor-v1")


def test_an_object_is_one_environment_only() -> None:
    environment = gymnasium.make("CartPole-v1")
    assert make(environment).single is environment
    vector = make(environment)
    assert make(vector, n=5) is vector
    with pytest.raises(ConfigError, match="one object was given: give an id or a factory"):
        make(environment, n=2)


def test_an_environment_is_known_again_by_id_and_arguments() -> None:
    config = specs.Environment(id="Pendulum-v1", kwargs={"g": 5.0, "max_episode_steps": 7})
    with make(config) as vector:
        assert environment_of(vector.single) == config
        assert make(environment_of(vector.single)).single.unwrapped.g == 5.0
    wrapped = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), float)
    assert environment_of(wrapped) is None  # the id alone would make another environment
    assert environment_of(Toy(Box(0, 1, (1,)))) is None
    assert environment_of("CartPole-v1") == specs.Environment(id="CartPole-v1")


@pytest.mark.parametrize("cut", [False, True])
def test_old_gym_steps_of_four_tell_termination_from_truncation(cut: bool) -> None:
    vector = make(OldToy(cut=cut))
    assert vector.spec == specs.Spec(observation=specs.Box(shape=(1,), low=-1.0, high=1.0), action=specs.Discrete(n=2))
    assert vector.reset(seeds=[5]).tolist() == [[0.0]]
    assert vector.single.environment.seeds == [5]
    results = [vector.step(np.zeros(1, int)) for _ in range(3 if cut else 2)]
    assert [bool(r.terminated[0]) for r in results] == ([False] * 3 if cut else [False, True])
    assert [bool(r.truncated[0]) for r in results] == ([False, False, True] if cut else [False, False])
    assert results[1].observation == np.float32(0.2)
    assert environment_of(vector.single) is None


@pytest.mark.parametrize(
    "wrap", [PassiveEnvChecker, lambda e: Passing(PassiveEnvChecker(e)), lambda e: Passing(Passing(PassiveEnvChecker(e)))]
)
def test_the_checker_of_gym_026_is_taken_out_because_numpy_2_breaks_it(wrap: Any) -> None:
    class New(OldToy):
        def reset(self, *, seed: int | None = None) -> Any:
            self.seeds.append(seed)
            return super().reset(), {}

        def step(self, action: int) -> Any:
            observation, reward, done, info = super().step(action)
            return observation, reward, np.bool_(done), False, info

    environment = wrap(New(cut=False))
    environment.reset()
    with pytest.raises(AttributeError, match="bool8"):
        environment.step(0)
    vector = make(environment)
    vector.reset(seeds=[3])
    result = vector.step(np.zeros(1, int))
    assert result.reward.tolist() == [1.0]
    inner = vector.single.environment
    while hasattr(inner, "env"):
        inner = inner.env
    assert inner.seeds[-1] == 3  # a seed reaches the innermost environment through wrappers that pass **kwargs on
