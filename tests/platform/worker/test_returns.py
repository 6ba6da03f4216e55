"""Which episodes a trial's evaluations play."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from d3ray.algos.environments.evaluate import EnvironmentEvaluator, episode_seeds, evaluate
from d3ray.platform.settings.config import EvaluationConfig, ExperimentConfig
from d3ray.platform.worker import returns as module
from d3ray.platform.worker.returns import Returns
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun


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

    def watched(policy: Any, environment: Any, *, episodes: int, seed: int, **how: Any) -> Any:
        played.append(episode_seeds(seed, episodes))
        return evaluate(policy, environment, episodes=episodes, seed=seed, **how)

    monkeypatch.setattr(module, "evaluate", watched)
    returns, same = Returns("CartPole-v1", EvaluationConfig(episodes=20), ""), EnvironmentEvaluator("CartPole-v1", episodes=20)
    early, late, again, other = (returns(algorithm, 1) for algorithm in (at(100), at(200), at(100), at(100, seed=1)))
    assert not set(played[0]) & set(played[1])
    assert not set(played[0]) & set(played[3])
    assert played[0] == played[2]
    assert early == again
    assert early["return"] not in (late["return"], other["return"])
    assert same(at(100), 1) == same(at(200), 2)
    random = Returns("CartPole-v1", EvaluationConfig(episodes=20, epsilon=1.0), "")
    assert early["length"] < 11  # always left falls in 9.4 steps or so, random actions in 22
    assert random(at(100), 1)["length"] > 16
    for evaluator in (returns, same, random):
        evaluator.close()


class Endless(gymnasium.Env[Any, Any]):
    """Pays 1 a step and never ends; a step while `held` is set does not come back."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (1,)), gymnasium.spaces.Discrete(2)
    free: ClassVar[threading.Event] = threading.Event()
    made: ClassVar[int] = 0

    def __init__(self, **_: Any) -> None:
        type(self).made += 1

    def reset(self, **_: Any) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.free.wait()
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.fixture
def endless() -> Iterator[str]:
    Endless.free.set()
    Endless.made = 0
    gymnasium.register("Endless-v0", Endless)
    yield "Endless-v0"
    Endless.free.set()
    del gymnasium.registry["Endless-v0"]


def test_an_episode_that_never_ends_is_cut_at_max_steps(endless: str) -> None:
    returns = Returns(endless, EvaluationConfig(episodes=3, n_envs=2, max_steps=50), "")
    with pytest.warns(UserWarning, match=r"Endless-v0 was cut: 3 of its 3 episodes went on after 50 steps \(max_steps\)"):
        assert returns(at(0), 1) == {"return": 50.0, "length": 50.0, "cut": 3.0}
    returns.close()


def test_an_evaluation_ends_when_its_time_is_over(endless: str) -> None:
    returns, begin = Returns(endless, EvaluationConfig(episodes=3, n_envs=2, max_steps=None, timeout=0.3), ""), time.monotonic()
    said = (
        r"2 of its 3 episodes had not ended after 0.3 seconds \(timeout\); they count with what they returned by then, and 1 of "
        r"its 3 episodes had not begun after 0.3 seconds \(timeout\) and does not count\.$"
    )
    with pytest.warns(UserWarning, match=said):
        found = returns(at(0), 1)
    assert time.monotonic() - begin < 10
    assert found["cut"] == 3
    assert found["return"] == found["length"] > 0  # the third was never begun and counts in no mean
    returns.close()


def test_a_step_that_does_not_come_back_holds_no_trial(endless: str) -> None:
    returns = Returns(endless, EvaluationConfig(episodes=2, max_steps=5, timeout=0.2), "", grace=0.2)
    Endless.free.clear()
    with pytest.warns(UserWarning, match="a step of the environment did not come back within evaluation.timeout, 0.2 seconds"):
        assert returns(at(0), 1) == {"cut": 2.0}
    Endless.free.set()
    before = Endless.made
    with pytest.warns(UserWarning, match="went on after 5 steps"):
        assert returns(at(0), 1) == {"return": 5.0, "length": 5.0, "cut": 2.0}
    assert Endless.made == before + 2  # others than those that hung
    returns.close()


def test_what_the_environment_raises_is_the_trials(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endless, "step", lambda *_: 1 / 0)
    returns = Returns(endless, EvaluationConfig(episodes=1), "")
    with pytest.raises(ZeroDivisionError):
        returns(at(0), 1)
    returns.close()


def test_default_limits_are_no_part_of_what_an_experiment_is() -> None:
    common = {"dataset": "d3ray/cartpole-replay", "algorithm": "DQN"}
    told = [
        ExperimentConfig.checked({**common, "evaluation": {"episodes": 2, **own}}).configuration()["evaluation"]
        for own in ({}, {"timeout": 3600}, {"timeout": 60})
    ]
    assert told[0] == told[1]
    assert not {"max_steps", "timeout"} & told[0].keys()
    assert told[2]["timeout"] == 60


def test_a_trial_goes_on_where_its_evaluations_are_cut_and_says_so() -> None:
    told = {
        "dataset": "d3ray/cartpole-replay",
        "algorithm": {"name": "DQN", "batch_size": 8},
        "n_steps": 4,
        "n_steps_per_epoch": 2,
        "evaluation": {"environment": "CartPole-v1", "episodes": 3, "max_steps": 5},
        "checkpoint": {"best": "evaluation/return"},
        "device": "cpu",
    }
    run = TrialRun(TrialConfig.checked(told))
    with pytest.warns(UserWarning, match=r"CartPole-v1 was cut: 3 of its 3 episodes went on after 5 steps"):
        rows = [run.epoch()[0], run.epoch()[0]]
    assert [(row["evaluation/return"], row["evaluation/cut"]) for row in rows] == [(5.0, 3.0), (5.0, 3.0)]
    (ended,) = run.finish().values()
    run.close()
    assert ended["status"] == "FINISHED"
    assert "met evaluation.max_steps or evaluation.timeout, which cut 3 of its 3 episodes" in ended["warning"]


def test_a_trial_whose_environment_hangs_is_trained_to_its_end(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE", 0.1)
    monkeypatch.setattr(Endless, "observation_space", gymnasium.spaces.Box(-np.inf, np.inf, (4,)))
    monkeypatch.setattr(Endless, "reset", lambda *_, **__: (np.zeros(4, np.float32), {}))
    Endless.free.clear()
    told = {
        "dataset": "d3ray/cartpole-replay",
        "algorithm": {"name": "DQN", "batch_size": 8},
        "n_steps": 2,
        "n_steps_per_epoch": 2,
        "evaluation": {"environment": endless, "episodes": 1, "timeout": 0.1},
        "checkpoint": {"best": "evaluation/return"},
        "device": "cpu",
    }
    run = TrialRun(TrialConfig.checked(told))
    with pytest.warns(UserWarning, match="measured nothing"):
        (row,) = run.epoch()
    assert row["evaluation/cut"] == 1
    assert "evaluation/return" not in row
    (ended,) = run.finish().values()
    run.close()
    assert ended["status"] == "FINISHED"
