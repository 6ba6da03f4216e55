"""A policy that remembers looks back at the actions that were done, also where an explorer or a caller replaced its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest

from d3ray import Dataset, DecisionTransformer
from d3ray.algos.environments import explorers
from d3ray.algos.environments.collect import collect
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.environments.explorers import Explorer, random_actions, register_explorer
from d3ray.algos.environments.make import make
from d3ray.algos.environments.rollout import Rollout
from d3ray.data.replay import ReplayBuffer
from d3ray.data.spec import Leaf

from .test_decision_transformer import Numbers, T, by_hand, trained

TARGET = 7.0


def moved(proposed: np.ndarray) -> np.ndarray:
    """An action that is far from every proposal, and follows from it."""
    return (0.4 - 0.5 * proposed).astype(np.float32)


class Moved(Explorer):
    """Does `moved` of what the policy proposes."""

    name: Literal["moved"] = "moved"

    def explore(self, proposed: np.ndarray, space: Leaf, *, step: int, seed: int) -> np.ndarray:
        return moved(proposed)


@pytest.fixture(scope="module")
def algorithm() -> DecisionTransformer:
    return trained(target_returns=(TARGET,))


@pytest.fixture
def explorer() -> Iterator[str]:
    register_explorer(Moved)
    yield "moved"
    del explorers._KNOWN["moved"]  # pyright: ignore[reportPrivateUsage]


def check_done(algorithm: Any, data: Dataset, random: np.ndarray) -> None:
    """Each recorded action is `moved` of the proposal after the steps that were done before it; the first ones may be random."""
    assert data.n_episodes > 3
    assert max(data.episodes.steps) > T + 2
    seen = 0
    for episode in data.episodes:
        left, steps = TARGET, []
        for t in range(len(episode)):
            proposed = by_hand(algorithm, [*steps, (episode.observations[t], np.zeros(3, np.float32), left, t)])
            action = episode.actions[t]
            if not (random == action).all(-1).any():
                np.testing.assert_allclose(action, moved(proposed), atol=2e-5)
                seen += 1
            steps.append((episode.observations[t], action, left, t))
            left -= float(np.asarray(episode.rewards[t]).item())
    assert seen == data.n_transitions - len(random)


@pytest.mark.parametrize("n_envs", [1, 3])
def test_an_explorers_actions_are_remembered(algorithm: Any, explorer: str, n_envs: int) -> None:
    vector = make(Numbers, n=n_envs, seed=4)
    data = collect(vector, algorithm.policy().asking(TARGET), n_episodes=9, explorer=explorer)
    check_done(algorithm, data, np.zeros((0, 3)))


def test_random_steps_and_an_explorers_are_remembered_in_a_rollout(algorithm: Any) -> None:
    vector, first = make(Numbers, n=2, seed=4), 7
    buffer = ReplayBuffer(200, vector.spec, n_envs=2)
    rollout, policy = Rollout(vector, buffer, Moved(), seed=3, random_steps=first), algorithm.policy()
    for _ in range(40):
        rollout.step(policy)
    random = [random_actions(vector.spec.action, 2, step=step, seed=3) for step in range(first)]
    check_done(algorithm, buffer.to_dataset(), np.concatenate(random))


class Noted(Numbers):
    """Keeps what was done since the last reset."""

    def reset(self, **arguments: Any) -> Any:
        self.done: list[np.ndarray] = []
        return super().reset(**arguments)

    def step(self, action: np.ndarray) -> Any:
        self.done.append(action)
        return super().step(action)


def test_an_evaluation_with_random_actions_remembers_them(algorithm: Any) -> None:
    environment, policy = Noted(), algorithm.policy()
    plain, looked_back = policy.step, 0

    def step(state: Any, observation: Any) -> Any:
        nonlocal looked_back
        for k, action in enumerate(reversed(environment.done[-T:])):
            np.testing.assert_array_equal(state["context/action"][0, -1 - k], action)
            looked_back += 1
        return plain(state, observation)

    policy.step = step
    assert len(evaluate(policy, environment, episodes=4, seed=3, epsilon=1.0).returns) == 4
    assert looked_back > 20


def test_who_does_another_action_in_one_environment_says_so(algorithm: Any) -> None:
    wrapper, rng, steps, left = algorithm.as_stateful_wrapper(TARGET), np.random.default_rng(0), [], TARGET
    action, reward = None, 0.0
    for t in range(2 * T):
        observation = rng.normal(size=5).astype(np.float32)
        left -= reward
        proposed = wrapper.predict(observation, reward, action)
        wanted = by_hand(algorithm, [*steps, (observation, np.zeros(3, np.float32), left, t)])
        np.testing.assert_allclose(proposed, wanted, atol=2e-5)
        action, reward = (None, 0.5) if t % 3 == 2 else (moved(proposed), 0.5)  # every third time its own
        steps.append((observation, proposed if action is None else action, left, t))
