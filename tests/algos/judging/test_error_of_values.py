"""Intervals that lean on values hold the truth as often as they say, where the values solve their equations on the logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from d3ray.algos.judging.estimates import CRITIC, estimate
from d3ray.algos.judging.logs import Logs

from .worlds import World, as_logged, played, values


def logs_of(
    world: World, rng: np.random.Generator, n: int, gamma: float, noise: float, scale: float = 1.0, off: float = 0.0
) -> Logs:
    """Logs of n episodes, with the values of the world that they show, whose rewards are wrong by about `off`."""
    state, action, reward, steps = played(world, rng, n, noise)
    shown = as_logged(world, state, action, reward, steps)
    q, v = values(shown._replace(reward=shown.reward + off * rng.normal(size=shown.reward.shape)), gamma)
    about: dict[str, Any] = {"q_value": scale * q[state, action], "value": scale * v[state], "gamma": gamma}
    with np.errstate(divide="ignore"):
        judged = np.log(world.judged[state, action])
    return Logs(scale * reward, steps, np.log(world.behaviour[state, action]), judged, **about)


@pytest.mark.parametrize(
    ("gamma", "scale", "n", "noise", "alike", "known"),
    [
        (0.9, 1.0, 200, 0.0, False, True),
        (0.9, 0.02, 200, 0.0, True, True),  # the first state is the same, so that all of the error is that of values
        (0.99, 50.0, 200, 1.0, False, True),
        (1.0, 1.0, 200, 0.0, True, True),
        (0.9, 1.0, 200, 1.0, False, False),
    ],
)
def test_the_truth_is_within_as_often_as_is_said(
    gamma: float, scale: float, n: int, noise: float, alike: bool, known: bool
) -> None:
    within, repeats = 0, 100
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        world = World.drawn(rng, alike=alike)
        logs = logs_of(world, rng, n, gamma, noise, scale)
        if not known:
            logs = Logs(logs.reward, logs.steps, None, logs.policy_log_prob, gamma, q_value=logs.q_value, value=logs.value)
        found = estimate(logs, ["DM"], times=200)["DM"]
        assert found.interval is not None
        truth = scale * world.first @ values(world, gamma)[1]
        within += found.interval[0] <= truth <= found.interval[1]
    assert within / repeats >= 0.88  # of 0.95, less three standard errors


def coverage(repeats: int, *, ends: tuple[float, float], near: float, **about: Any) -> dict[str, list[bool]]:
    """By estimator whether the truth was within, over worlds, of those that say of no reason why it might not be."""
    found: dict[str, list[bool]] = {}
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        world = World.drawn(rng, ends=ends, near=near)
        truth = float(world.first @ values(world, about["gamma"])[1])
        table = estimate(logs_of(world, rng, **about), times=200)
        for name in table:
            row = table[name]
            if row.refused is None and row.caveat in (None, CRITIC):
                assert row.interval is not None
                found.setdefault(name, []).append(row.interval[0] <= truth <= row.interval[1])
    return found


BANDIT = {"gamma": 1.0, "n": 300, "noise": 0.5, "ends": (1.0, 1.0), "near": 0.0}
EPISODE = {"gamma": 0.9, "n": 200, "noise": 0.5, "ends": (0.05, 0.3), "near": 0.6}


@pytest.mark.long
@pytest.mark.parametrize(
    "world", [BANDIT, {**BANDIT, "n": 60, "near": 0.6}, EPISODE, {**EPISODE, "gamma": 1.0, "ends": (0.2, 0.5)}]
)
def test_whoever_gives_an_interval_without_more_words_holds_the_truth_in_it(world: dict[str, Any]) -> None:
    found = coverage(120, **world)
    assert len(found) >= 6
    for name, within in found.items():
        n = len(within)  # of 0.93, which is what resampling 60 to 300 episodes comes to, less three standard errors
        assert np.mean(within) >= 0.93 - 3 * np.sqrt(0.93 * 0.07 / n), (name, np.mean(within), n)


def test_values_that_miss_their_equations_widen_the_interval() -> None:
    """Each state and action is valued as if it paid another reward: where the critic is wrong as a whole the interval says so."""
    within = coverage(40, gamma=0.9, n=200, noise=0.0, ends=(0.05, 0.3), near=0.0, off=0.5)["DM"]
    assert np.mean(within) >= 0.8


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("last", "judged"), [(1.0, None), (0.0, np.full(40, -np.inf))])
def test_values_whose_error_is_not_known_have_no_interval_and_say_so(last: float, judged: np.ndarray | None) -> None:
    """Episodes at γ = 1 that were all cut, with values that solve their equations; and those of what the policy never does."""
    about: dict[str, Any] = {"q_value": np.zeros(40), "value": np.zeros(40), "final_value": np.full(20, last)}
    found = estimate(Logs(np.tile([0.0, -1.0], 20), np.full(20, 2), None, judged, gamma=1.0, **about), ["DM"], times=50)["DM"]
    assert (found.value, found.interval, found.standard_error) == (0, None, None)
    assert found.caveat is not None
    assert found.caveat.startswith("There is no interval: the logs do not say how wrong the values are")
