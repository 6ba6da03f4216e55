"""Evaluation: fixed quotas, seeds by episode, states of policies, speed."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from d3ray.algos.environments.evaluate import EnvironmentEvaluator, Evaluation, episode_seeds, evaluate
from d3ray.algos.environments.make import make
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Environment


class Upright:
    """Pushes where the pole falls: deterministic, about 490 steps."""

    def start(self, n: int) -> None:
        return None

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        return state, (observation[:, 2] + observation[:, 3] > 0).astype(np.int64)


class Zero(Upright):
    """Always acts 0."""

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        return state, np.zeros(len(observation), np.int64)


class Lengths(gymnasium.Env[np.ndarray, int]):
    """Episodes as long as the seed says: 1 … 50 steps, a reward of their length in all, drawn at reset."""

    observation_space, action_space = gymnasium.spaces.Box(0, 100, (1,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 51))
        return np.array([self.left], np.float32), {}

    def step(self, action: int) -> Any:
        self.left -= 1
        return np.array([self.left], np.float32), 1.0, self.left == 0, False, {}


def test_returns_do_not_depend_on_the_number_of_environments() -> None:
    results = [evaluate(Upright(), "CartPole-v1", episodes=5, seed=1, n_envs=n) for n in (1, 2, 5)]
    for other in results[1:]:
        assert other.returns.tolist() == results[0].returns.tolist()
    assert len(set(evaluate(Zero(), Lengths, episodes=20, seed=1).returns)) > 5


def test_episode_k_is_what_its_seed_gives_alone() -> None:
    seeds = episode_seeds(6, 9)
    assert seeds[:4] == episode_seeds(6, 4)
    assert seeds != episode_seeds(7, 9)
    environment, expected = Lengths(), []
    for seed in seeds:
        environment.reset(seed=seed)
        expected.append(float(environment.left))
    for n_envs in (None, 1, 4, 9):
        played = evaluate(Zero(), Lengths, episodes=9, seed=6, n_envs=n_envs)
        assert played.returns.tolist() == expected
        assert played.lengths.tolist() == expected


def test_short_episodes_are_not_counted_more_often() -> None:
    class OneLength(Lengths):
        made = 0

        def __init__(self) -> None:
            OneLength.made += 1
            self.length = 2 if OneLength.made % 2 else 200

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            shown = super().reset(seed=seed)
            self.left = self.length
            return shown

    played = evaluate(Zero(), OneLength, episodes=20, n_envs=4)
    assert sorted(played.lengths.tolist()) == [2] * 10 + [200] * 10  # counted as they finish, all twenty would be of length 2
    assert played.mean == 101
    assert played.std == 99


def test_a_policy_that_keeps_state_starts_every_episode_anew() -> None:
    class Counter:
        """Notes the state it is given at an episode's first observation."""

        seen: list[int]

        def __init__(self) -> None:
            self.seen = []

        def start(self, n: int) -> np.ndarray:
            return np.zeros((n, 1))

        def step(self, state: np.ndarray, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            assert len(state) == len(observation)
            self.seen.append(int(state.max()))
            return state + 1, np.zeros(len(observation), np.int64)

    policy = Counter()
    lengths = evaluate(policy, Lengths, episodes=7, n_envs=3).lengths
    longest = [max(lengths[0:3]), max(lengths[3:6]), lengths[6]]
    assert policy.seen == [t for rounds in longest for t in range(rounds)]


def test_an_object_is_played_alone_and_left_open() -> None:
    environment = gymnasium.make("CartPole-v1")
    played = evaluate(Upright(), environment, episodes=2)
    environment.reset()  # a closed one would refuse on some back ends; a wrapper of ours would have been closed
    assert played.environment == Environment(id="CartPole-v1")
    vector = make("CartPole-v1", n=2)
    assert evaluate(Upright(), vector, episodes=2).returns.tolist() == played.returns.tolist()


def test_normalized_needs_a_reference() -> None:
    returns = np.array([3234.3, -20.272305])
    assert Evaluation(returns, np.ones(2, int), Environment(id="Hopper-v4")).normalized == pytest.approx(50)
    assert Evaluation(returns, np.ones(2, int), Environment(id="CartPole-v1")).normalized is None
    assert Evaluation(returns, np.ones(2, int)).normalized is None


@pytest.mark.parametrize(("episodes", "n_envs", "name"), [(0, None, "episodes is 0"), (3, 0, "n_envs is 0")])
def test_nothing_to_play_is_refused(episodes: int, n_envs: int | None, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        evaluate(Upright(), "CartPole-v1", episodes=episodes, n_envs=n_envs)


def test_an_evaluator_plays_the_same_episodes_at_every_epoch() -> None:
    class Algorithm:
        def policy(self) -> Upright:
            return Upright()

    evaluator = EnvironmentEvaluator("CartPole-v1", episodes=3, seed=2)
    first, second = evaluator(Algorithm(), 1), evaluator(Algorithm(), 2)
    assert first == second
    played = evaluate(Upright(), "CartPole-v1", episodes=3, seed=2)
    assert first == {"return": played.mean, "return_std": played.std, "length": played.lengths.mean()}
    evaluator.close()
    assert evaluator(Algorithm(), 3) == first


def test_another_seed_plays_other_episodes() -> None:
    class Algorithm:
        def policy(self) -> Zero:
            return Zero()

    found = [EnvironmentEvaluator(Lengths, episodes=20, seed=seed)(Algorithm(), 1)["length"] for seed in (0, 1, 0)]
    assert found[0] == found[2] != found[1]
    assert found[1] == evaluate(Algorithm().policy(), Lengths, episodes=20, seed=1).mean


def test_ten_cartpole_episodes_take_well_under_a_second() -> None:
    """0.04 s measured on an idle core. The best of three, for busy machines."""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        assert evaluate(Upright(), "CartPole-v1", episodes=10).lengths.sum() > 4000
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.7


def test_hopper_of_the_literature_can_be_played() -> None:
    pytest.importorskip("mujoco")

    class Still:
        def start(self, n: int) -> None:
            return None

        def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
            return None, np.zeros((len(observation), 3), np.float32)

    played = evaluate(Still(), "Hopper-v4", episodes=2)
    assert 0 < played.mean < 500
    assert played.normalized == pytest.approx(100 * (played.mean + 20.272305) / 3254.572305)


@pytest.mark.parametrize("key", ["success", "is_success"])
def test_success_is_what_the_last_step_tells(key: str) -> None:
    class Tells(gymnasium.Wrapper[Any, Any, Any, Any]):
        """Every step of an odd episode's number is told as solved, or of an even one all but the last."""

        number = 0

        def reset(self, **how: Any) -> Any:
            self.number += 1
            return self.env.reset(**how)

        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = self.env.step(action)
            ends = terminated or truncated
            return observation, reward, terminated, truncated, {**info, key: self.number % 2 == 1 or not ends}

    with make(Tells(gymnasium.make("CartPole-v1"))) as vector:
        played = evaluate(Upright(), vector, episodes=3)
    assert played.successes is not None
    assert played.successes.tolist() == [False, True, False]
    assert played.success == pytest.approx(1 / 3)
    assert evaluate(Upright(), "CartPole-v1", episodes=1).success is None


class Costly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What Safety-Gymnasium tells: each step costs 1 while the cart is right of the middle, and 0.5 as a number of NumPy else."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, "cost": 1 if observation[0] > 0 else np.float32(0.5)}


def test_costs_are_summed_by_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[tuple[int, float]]()
    step = Costly.step

    def watched(self: Any, action: Any) -> Any:
        result = step(self, action)
        told.append((id(self), float(result[4]["cost"])))
        return result

    monkeypatch.setattr(Costly, "step", watched)
    with make(Costly(gymnasium.make("CartPole-v1"))) as vector:
        played = evaluate(Upright(), vector, episodes=3, max_steps=50)
        found = EnvironmentEvaluator(vector, episodes=3, max_steps=50)(SimpleNamespace(policy=Upright), 1)
    ends = np.cumsum(played.lengths)
    each = [cost for _, cost in told][: ends[-1]]
    expected = [sum(each[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    assert played.costs is not None
    assert played.costs.tolist() == expected
    assert played.cost == pytest.approx(np.mean(expected))
    assert found["cost"] == played.cost
    assert evaluate(Upright(), "CartPole-v1", episodes=1).cost is None
