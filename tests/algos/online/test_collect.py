"""A policy's experience, collected into a buffer."""

from __future__ import annotations

import numpy as np
import pytest

from d3ray import DQN, ReplayBuffer
from d3ray.algos.environments.explorers import ConstantEpsilonGreedy
from d3ray.algos.environments.make import make
from d3ray.algos.registry import algorithm_class
from d3ray.data.errors import ConfigError


def dqn():
    return DQN(encoder={"hidden_units": (16, 16)}, batch_size=16, learning_rate=1e-3, seed=3)


def test_collecting_fills_a_buffer():
    algorithm = dqn()
    buffer = ReplayBuffer(100, make("CartPole-v1").spec, 2)
    assert algorithm.collect("CartPole-v1", buffer, n_steps=9, n_envs=2) is buffer  # uniform actions, for nothing is fitted
    assert len(buffer) == 10
    algorithm.build_with_env("CartPole-v1")
    algorithm.collect("CartPole-v1", buffer, ConstantEpsilonGreedy(epsilon=0.0), n_steps=8, n_envs=2)
    data = buffer.to_dataset()
    assert data.n_transitions == 18
    assert data.episodes.final_recorded.all()
    with pytest.raises(ConfigError, match="n_steps is None; a buffer gets a number of transitions"):
        algorithm.collect("CartPole-v1", buffer, n_envs=2)
    with pytest.raises(ConfigError, match="The replay buffer is of 2 environments; 1 are stepped"):
        algorithm.collect("CartPole-v1", buffer, n_steps=8)
    with pytest.raises(ConfigError, match="A buffer gets a number of transitions, n_steps, and n_episodes is for"):
        algorithm.collect("CartPole-v1", buffer, n_episodes=3, n_envs=2)


@pytest.mark.parametrize("given", [None, ReplayBuffer(100, make("CartPole-v1").spec)])
def test_an_explorer_that_departs_from_a_policy_needs_one(given):
    with pytest.raises(ConfigError, match="'boltzmann' departs from a trained policy, and there is none"):
        dqn().collect("CartPole-v1", given, explorer="boltzmann", n_steps=5)
    assert not given


def test_collecting_again_gives_other_experience():
    def collected(times, **seeds):
        algorithm, buffer = dqn(), ReplayBuffer(100, make("CartPole-v1").spec)
        for _ in range(times):
            algorithm.collect("CartPole-v1", buffer, n_steps=10, **seeds)
        data = buffer.to_dataset()
        return data.columns["observation"], data.episodes.first_row

    seen, first = collected(2)
    starts = seen[first]
    assert len(np.unique(starts, axis=0)) == len(starts) >= 2
    np.testing.assert_array_equal(collected(2)[0], seen)  # all of it follows from the algorithm's seed
    seen, first = collected(2, seed=4)
    assert len(np.unique(seen[first], axis=0)) == len(first) // 2


def test_collecting_again_into_a_full_buffer_gives_other_experience():
    """Of one ring of Pendulum's, whose episodes are cut at the end of each call: what is counted in it is then always the same."""
    algorithm, buffer = algorithm_class("TD3")(action_scaler="min_max", seed=3), ReplayBuffer(22, make("Pendulum-v1").spec)
    seen: list[np.ndarray] = []
    for _ in range(6):
        algorithm.collect("Pendulum-v1", buffer, n_steps=10)
        seen.append(buffer.columns["observation"][buffer.finished_rows()[0]][-11:].copy())
    assert len(buffer) == 20
    assert buffer.n_written == 66
    assert len(np.unique(seen, axis=0)) == 6
