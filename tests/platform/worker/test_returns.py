"""Which episodes a trial's evaluations play."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from d3ray.algos.environments.evaluate import EnvironmentEvaluator, episode_seeds, evaluate
from d3ray.platform.worker import returns as module
from d3ray.platform.worker.returns import Returns


class Zero:
    """Always acts 0, so that an episode of CartPole is as long as its beginning makes it."""

    def start(self, n: int) -> None:
        return None

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        return state, np.zeros(len(observation), np.int64)


def at(step: int, seed: int = 0) -> Any:
    return SimpleNamespace(seed=seed, step=step, policy=Zero)


def test_a_trial_plays_other_episodes_at_every_step_and_the_estimators_evaluator_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[list[int]] = []

    def watched(policy: Any, environment: Any, *, episodes: int, seed: int, epsilon: float) -> Any:
        played.append(episode_seeds(seed, episodes))
        return evaluate(policy, environment, episodes=episodes, seed=seed, epsilon=epsilon)

    monkeypatch.setattr(module, "evaluate", watched)
    returns, same = Returns("CartPole-v1", 20, None, ""), EnvironmentEvaluator("CartPole-v1", episodes=20)
    early, late, again, other = (returns(algorithm, 1) for algorithm in (at(100), at(200), at(100), at(100, seed=1)))
    assert not set(played[0]) & set(played[1])
    assert not set(played[0]) & set(played[3])
    assert played[0] == played[2]
    assert early == again
    assert early["return"] not in (late["return"], other["return"])
    assert same(at(100), 1) == same(at(200), 2)
    random = Returns("CartPole-v1", 20, None, "", epsilon=1.0)
    assert early["length"] < 11  # always left falls in 9.4 steps or so, random actions in 22
    assert random(at(100), 1)["length"] > 16
    for evaluator in (returns, same, random):
        evaluator.close()
