"""Exploration: what is drawn has the probability that is said, and the same address draws the same."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest, truncnorm

from d3ray.data.errors import ConfigError
from d3ray.data.spec import Box, Discrete, Spec
from d3ray.platform.service.exploring import EpsilonGreedy, GaussianExploration, SoftmaxExploration, key_of, share_of, uniforms

from .packages import OBSERVATION, serving

THREE = Spec(observation=Box(shape=(2,)), action=Discrete(n=3, start=5))
ARM = Spec(observation=Box(shape=(2,)), action=Box(shape=(2,), low=(-2.0, 0.0), high=(2.0, 10.0)))
N = 20_000
KEYS = [key_of(1, "3", f"e{k}", k % 7) for k in range(N)]


def test_epsilon_by_hand() -> None:
    """ε = 0.3 and two legal actions: the greedy one has 0.85, the other 0.15, the third nothing."""
    legal = np.tile([True, False, True], (N, 1))
    action, log_prob = EpsilonGreedy(epsilon=0.3).explore(np.full(N, 7), KEYS, THREE, legal, None)
    assert set(action) == {5, 7}
    assert math.isclose((action == 7).mean(), 0.85, abs_tol=0.01)
    np.testing.assert_allclose(log_prob[action == 7], math.log(0.85))
    np.testing.assert_allclose(log_prob[action == 5], math.log(0.15))


def test_epsilon_without_a_mask_by_hand() -> None:
    action, log_prob = EpsilonGreedy(epsilon=0.6).explore(np.full(N, 5), KEYS, THREE, None, None)
    assert [math.isclose((action == k).mean(), p, abs_tol=0.015) for k, p in ((5, 0.6), (6, 0.2), (7, 0.2))] == [True] * 3
    np.testing.assert_allclose(np.exp(log_prob), np.where(action == 5, 0.6, 0.2))


def test_softmax_by_hand() -> None:
    """Values 0, ln 3 · T and one that is not legal: 1/4 and 3/4."""
    values = np.tile([0.0, 2 * math.log(3), 100.0], (N, 1))
    legal = np.tile([True, True, False], (N, 1))
    action, log_prob = SoftmaxExploration(temperature=2.0).explore(np.full(N, 7), KEYS, THREE, legal, values)
    assert set(action) == {5, 6}
    assert math.isclose((action == 6).mean(), 0.75, abs_tol=0.01)
    np.testing.assert_allclose(np.exp(log_prob), np.where(action == 6, 0.75, 0.25))


def test_gaussian_is_the_truncated_normal_of_scipy() -> None:
    proposed = np.tile(np.float32([1.9, 5.0]), (N, 1))
    action, log_prob = GaussianExploration(deviation=0.25).explore(proposed, KEYS, ARM, None, None)
    sigma = 0.25 * np.array([2.0, 5.0])
    low, high = (np.array(bound) for bound in ((-2.0, 0.0), (2.0, 10.0)))
    wanted = truncnorm((low - proposed[0]) / sigma, (high - proposed[0]) / sigma, proposed[0], sigma)
    assert action.dtype == np.float32
    assert (action >= low).all()
    assert (action <= high).all()
    np.testing.assert_allclose(log_prob, wanted.logpdf(action).sum(1), atol=1e-6)
    for k in range(2):
        one = truncnorm((low[k] - proposed[0, k]) / sigma[k], (high[k] - proposed[0, k]) / sigma[k], proposed[0, k], sigma[k])
        assert kstest(action[:, k], one.cdf).pvalue > 0.001
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.03


def test_a_proposal_beyond_the_bounds_counts_as_the_bound() -> None:
    beyond, _ = (GaussianExploration().explore(np.float32([[9.0, -3.0]]), KEYS[:1], ARM, None, None) for _ in range(2))
    at, _ = (GaussianExploration().explore(np.float32([[2.0, 0.0]]), KEYS[:1], ARM, None, None) for _ in range(2))
    np.testing.assert_array_equal(beyond[0], at[0])
    np.testing.assert_allclose(beyond[1], at[1])


def test_addresses_are_apart() -> None:
    keys = {key_of(seed, version, episode, step) for seed in (0, 1) for version in "12" for episode in "ab" for step in (0, 1)}
    assert len(keys) == 16
    assert uniforms(KEYS[0], 3) == uniforms(KEYS[0], 3)
    assert kstest([uniforms(key, 1)[0] for key in KEYS], "uniform").pvalue > 0.001
    assert kstest([share_of(f"episode {k}") for k in range(N)], "uniform").pvalue > 0.001


def test_what_does_not_suit_is_said(discrete: Path, continuous: Path, draws: Path, looks_back: Path) -> None:
    cases: list[tuple[Path, str, str]] = [
        (continuous, "epsilon", "for discrete actions"),
        (continuous, "softmax", "for discrete actions"),
        (discrete, "gaussian", "for continuous actions"),
        (draws, "gaussian", "none that enclose some"),
    ]
    for folder, name, part in cases:
        with pytest.raises(ConfigError, match=part), serving(folder, explore=name):
            pass


def test_a_service_says_the_probability_of_what_it_does(discrete: Path) -> None:
    with serving(discrete, explore={"name": "epsilon", "epsilon": 0.5}) as (client, _), serving(discrete) as (greedy, _):
        best = greedy.act()["action"]
        rows = [{"observation": OBSERVATION, "episode": f"e{k}"} for k in range(200)]
        found = client.ask("/act", {"decisions": rows})[1]["decisions"]
        again = client.ask("/act", {"decisions": rows[::-1]})[1]["decisions"][::-1]
        one = client.act(episode="e7", explain=True)
    assert [r["action"] for r in again] == [r["action"] for r in found], "a retried request gets the same act"
    assert {r["action"] for r in found} == {0, 1, 2}
    for reply in found:
        wanted = 0.5 + 0.5 / 3 if reply["action"] == best else 0.5 / 3
        assert math.isclose(math.exp(reply["log_prob"]), wanted)
    assert math.isclose(one["explain"]["propensity"], math.exp(found[7]["log_prob"]))


def test_a_service_draws_by_the_values_of_its_package(discrete: Path) -> None:
    from d3ray.algos.export.package import read_values

    values = read_values(discrete)
    assert values is not None
    q = values.run({"observation": np.float32([OBSERVATION]), "action_mask": np.ones((1, 3), bool)})[0].astype(np.float64)
    wanted = np.exp(q / 0.1) / np.exp(q / 0.1).sum()
    with serving(discrete, explore={"name": "softmax", "temperature": 0.1}) as (client, _):
        found = client.ask("/act", {"decisions": [{"observation": OBSERVATION, "episode": f"e{k}"} for k in range(250)]})[1][
            "decisions"
        ]
    for reply in found:
        assert math.isclose(math.exp(reply["log_prob"]), wanted[reply["action"]], rel_tol=1e-5)
    counts = np.bincount([reply["action"] for reply in found], minlength=3) / 250
    np.testing.assert_allclose(counts, wanted, atol=0.1)


def test_what_was_explored_is_what_a_memory_holds(tmp_path: Path) -> None:
    """A transformer's next decision looks back at the action that was done, not at the one that it proposed."""
    from d3ray.algos.export.package import read_package

    from .packages import write_policy

    folder = write_policy("DiscreteDecisionTransformer", tmp_path / "ddt")
    policy = read_package(folder)
    more: Any = {"explore": {"name": "epsilon", "epsilon": 1.0}}
    with serving(folder, **more) as (client, _):
        reply = next(r for k in range(20) if (r := client.act(episode=f"e{k}", target_return=1.0))["action"] != _greedy(policy))
        after = client.act(state=reply["state"])
        key = after["action"]
    memory, _ = policy.step(policy.start(1, 1.0), np.float32([OBSERVATION]))
    memory = policy.executed(memory, [reply["action"]])
    from d3ray.platform.service.memory import unpacked

    held = unpacked(reply["state"], "ddt").memory["own/context/action"]
    np.testing.assert_array_equal(held, memory["context/action"])
    assert key in (0, 1, 2)


def _greedy(policy: Any) -> int:
    return int(policy.step(policy.start(1, 1.0), np.float32([OBSERVATION]))[1][0])
