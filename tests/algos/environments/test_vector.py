"""Stepping several environments as one: ends stay where they happen, seeds, clipping."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from d3ray.algos.environments.make import make
from d3ray.algos.environments.vector import VectorEnvironment
from d3ray.data.errors import ConfigError, DataError


def test_a_step_is_that_of_each_environment_alone() -> None:
    vector = make("CartPole-v1", n=3)
    alone = [gymnasium.make("CartPole-v1") for _ in range(3)]
    observation = vector.reset(seeds=[7, 8, 9])
    assert observation.tolist() == [environment.reset(seed=s)[0].tolist() for environment, s in zip(alone, (7, 8, 9), strict=True)]
    for t in range(6):
        actions = np.array([t % 2, 1, 0])
        result = vector.step(actions)
        for i, environment in enumerate(alone):
            seen, reward, terminated, truncated, _ = environment.step(int(actions[i]))
            assert result.observation[i].tolist() == seen.tolist()
            assert (result.reward[i], result.terminated[i], result.truncated[i]) == (reward, terminated, truncated)


def test_an_environment_that_ends_shows_its_final_observation_until_it_is_reset() -> None:
    vector = make("CartPole-v1", n=2)
    vector.reset(seeds=[0, 1])
    playing = [0, 1]
    while True:
        result = vector.step(np.array([1, vector.environments[1].unwrapped.steps_beyond_terminated is None]), playing)
        if result.terminated[0]:
            break
    final = result.observation[0]
    assert abs(final[2]) > 0.2095  # the pole's angle is past the limit: nobody has reset it
    other = vector.step(np.array([0, 0]), [1])
    assert other.observation[0].tolist() == final.tolist()
    assert other.reward.tolist() == [0.0, 1.0]
    assert not other.ended[0]
    fresh = vector.reset([0], [5])
    assert abs(fresh[0]).max() <= 0.05
    assert fresh[1].tolist() == other.observation[1].tolist()
    assert final[2] == result.observation[0][2]  # arrays handed out are not written to


def test_truncation_is_told_from_termination() -> None:
    vector = make(lambda: gymnasium.make("Pendulum-v1", max_episode_steps=2))
    vector.reset(seeds=[0])
    assert not vector.step(np.zeros((1, 1))).ended[0]
    result = vector.step(np.zeros((1, 1)))
    assert (result.terminated[0], result.truncated[0]) == (False, True)


def test_seeds_of_resets_are_derived_from_environment_and_number_of_reset() -> None:
    one, two = make("CartPole-v1", n=2, seed=3), make("CartPole-v1", n=2, seed=3)
    first = one.reset()
    assert first.tolist() == two.reset().tolist()
    assert first[0].tolist() != first[1].tolist()
    again = one.reset([1])  # that environment 0 is not reset changes nothing for environment 1
    assert again[1].tolist() == two.reset()[1].tolist()
    assert again[1].tolist() != first[1].tolist()
    assert make("CartPole-v1", seed=4).reset()[0].tolist() != first[0].tolist()


def test_actions_are_clipped_at_the_edge_and_nan_is_refused() -> None:
    class Echo(gymnasium.Env):
        observation_space, action_space = (
            gymnasium.spaces.Box(-9, 9, (2,)),
            gymnasium.spaces.Box(np.float32([-1, -2]), np.float32([1, 2])),
        )

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            assert self.action_space.contains(action)  # the dtype and the shape as well
            return action, 0.0, False, False, {}

    vector = make(Echo, n=2)
    vector.reset()
    proposed = np.array([[5.0, -5.0], [0.5, -1.5]])
    assert vector.step(proposed).observation.tolist() == [[1.0, -2.0], [0.5, -1.5]]
    assert proposed[0, 0] == 5.0
    with pytest.raises(DataError, match="NaN for environment 1"):
        vector.step(np.array([[0.0, 0.0], [0.0, np.nan]]))


def test_discrete_actions_may_be_a_column() -> None:
    vector = make("CartPole-v1", n=2)
    shown = vector.reset(seeds=[1, 1])
    result = vector.step(np.array([[1], [0]]))
    assert result.observation[0, 1] > shown[0, 1] > result.observation[1, 1]  # pushed right and left


def test_no_environment_is_no_vector() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        VectorEnvironment([])
