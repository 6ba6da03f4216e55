"""Environments that pay arrays or NaN, or take actions of several axes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import d3ray
from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.environments.make import make
from d3ray.algos.judging.decisions import decisions
from d3ray.algos.judging.seen import walk
from d3ray.d3rlpy.explorers import NormalNoise
from d3ray.data.errors import DataError

ENCODER = {"hidden_units": (8,)}
RNG = np.random.default_rng(0)


class Odd(gymnasium.Env[Any, Any]):
    """Episodes of 5 steps, in which `pays` says what a step pays."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))

    def __init__(self, pays: Any, shape: tuple[int, ...] = (4,), ended: Any = bool) -> None:
        self.pays, self.ended, self.took = pays, ended, list[np.ndarray]()
        self.action_space = gymnasium.spaces.Box(np.arange(np.prod(shape)).reshape(shape) - 10.0, 10.0, dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(np.asarray(action, self.action_space.dtype))
        self.took.append(action)
        self.t += 1
        return np.zeros(3, np.float32), self.pays(self.t), self.ended(self.t == 5), self.ended(False), {}


def trained(shape: tuple[int, ...] = (4,)) -> d3ray.TD3PlusBC:
    settings: Any = {"actor_encoder": ENCODER, "critic_encoder": ENCODER, "batch_size": 8}
    observations, action = RNG.normal(size=(200, 3)), RNG.uniform(-1, 1, (200, *shape))
    data = d3ray.Dataset.from_arrays(observations, action, np.ones(200), np.arange(200) % 10 == 9)
    return d3ray.TD3PlusBC(seed=0, **settings).fit(data, n_steps=1)


@pytest.mark.parametrize(
    ("pays", "ended"),
    [(lambda t: np.array([1.0]), bool), (lambda t: np.array([[1]]), lambda e: np.array([e])), (lambda t: np.float32(1), np.bool_)],
)
def test_an_array_of_one_number_is_a_number(pays: Any, ended: Any) -> None:
    assert evaluate(trained().policy(), Odd(pays, ended=ended), episodes=2).mean == 5
    assert collect(Odd(pays, ended=ended), n_steps=10).columns["reward"].sum() == 10


def test_what_is_not_one_number_is_refused_by_what_it_is() -> None:
    for pays, said in (
        (np.zeros(2), r"Environment 0 gives as reward an array of shape \[2\], and a step has one number\."),
        (None, "Environment 0 gives as reward NoneType 'None', and a step has one number"),
        ("1.0", "Environment 0 gives as reward str '1.0'"),
    ):
        with pytest.raises(DataError, match=said):
            collect(Odd(lambda t, pays=pays: pays), n_steps=10)
    with pytest.raises(DataError, match="gives as terminated an array"):
        collect(Odd(float, ended=lambda e: np.array([e, e])), n_steps=10)


def test_a_reward_that_is_nan_makes_a_return_nan_and_is_named() -> None:
    paying = Odd(lambda t: float("nan") if t == 3 else 1.0)
    with pytest.warns(
        UserWarning, match="Environment 0, Odd, paid nan at step 3 of episode 0, so the mean return is no finite number"
    ):
        played = evaluate(trained().policy(), paying, episodes=2)
    assert np.isnan(played.returns).all()
    assert played.lengths.tolist() == [5, 5]
    with pytest.raises(DataError, match="Environment 0 paid nan at step 3 of its episode, which is not finite"):
        d3ray.SAC(seed=0, action_scaler="min_max").fit_online(paying, n_steps=10)  # pyright: ignore[reportArgumentType]


def test_actions_of_several_axes_are_vectors_here_and_have_their_shape_there() -> None:
    environment = Odd(float, (2, 2))
    vector = make(environment)
    assert vector.spec.action.shape == (4,)
    low, high = vector.spec.action.bounds() or (None, None)
    assert low is not None and high is not None  # noqa: PT018
    assert (low.tolist(), high.tolist()) == ([-10, -9, -8, -7], [10, 10, 10, 10])
    data = collect(environment, n_steps=10)
    assert data.columns["action"].shape[1:] == (4,)
    environment.took.clear()
    assert evaluate(trained().policy(), environment, episodes=1).mean == 15
    assert {np.shape(action) for action in environment.took} == {(2, 2)}
    settings: Any = {"actor_encoder": ENCODER, "critic_encoder": ENCODER, "batch_size": 4, "action_scaler": "min_max"}
    d3ray.SAC(seed=0, **settings).fit_online(environment, n_steps=10)


def test_data_of_such_actions_are_refused_before_training() -> None:
    said = r"TD3PlusBC acts by vectors, and actions of 'dataset' have the shape \[2, 2\]: make them vectors of 4"
    with pytest.raises(DataError, match=said):
        trained((2, 2))


def test_what_asks_a_policy_of_actions_of_several_axes_takes_them_as_vectors() -> None:
    environment = Odd(float, (2, 2))
    environment.action_space = gymnasium.spaces.Box(-10, 10, (2, 2), np.int32)
    data = collect(environment, n_steps=40)
    settings: Any = {"actor_encoder": ENCODER, "critic_encoder": ENCODER, "batch_size": 8, "action_scaler": "min_max"}
    judged = d3ray.SAC(seed=0, **settings).fit(data, n_steps=1)
    for acts in (judged.predict, judged.sample_action):
        action = acts(np.zeros((6, 3), np.float32))
        assert (action.shape, action.dtype) == ((6, 2, 2), np.int32)
    fqe = d3ray.FQE(algo=judged, batch_size=8, action_scaler="min_max", seed=0).fit(data, n_steps=2)
    assert bool(next(walk(fqe, data)).best.isfinite().all())
    assert decisions(judged.policy(), data).following().shape == (40, 4)
    noisy = NormalNoise(std=0.1).sample(judged, np.zeros((6, 3), np.float32), 0)
    assert noisy.shape == (6, 4)
    fqe.fit_online(environment, d3ray.ReplayBuffer(100, judged.spec_), n_steps=10, update_start_step=8, n_steps_per_epoch=10)
