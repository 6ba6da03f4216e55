"""The direct method's interval holds the truth as often as it says, where the values solve their equations on the logs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from d3ray.algos.judging.estimates import estimate
from d3ray.algos.judging.logs import Logs

STATES, ACTIONS = 4, 2


class World(NamedTuple):
    """A tabular decision process, who acted in it, and who is judged."""

    following: np.ndarray  # [S, A, S]
    reward: np.ndarray  # [S, A]
    end: np.ndarray  # [S, A], the chance that an episode ends there
    first: np.ndarray  # [S]
    behaviour: np.ndarray  # [S, A]
    judged: np.ndarray  # [S, A], greedy

    @classmethod
    def drawn(cls, rng: np.random.Generator, *, alike: bool) -> World:
        """At random; `alike`: every episode begins in the first state."""
        shape = STATES, ACTIONS
        first = np.eye(STATES)[0] if alike else rng.dirichlet(np.ones(STATES))
        ends, acts = rng.uniform(0.05, 0.3, shape), rng.dirichlet(np.ones(ACTIONS) * 3, STATES)
        judged = np.eye(ACTIONS)[rng.integers(0, ACTIONS, STATES)]
        return cls(rng.dirichlet(np.ones(STATES) * 0.7, shape), rng.normal(size=shape), ends, first, acts, judged)


def values(world: World, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Q and V of who is judged, by linear algebra."""
    on = np.einsum("sa,sa,sat->st", world.judged, 1 - world.end, world.following)
    v = np.linalg.solve(np.eye(STATES) - gamma * on, (world.judged * world.reward).sum(1))
    return world.reward + gamma * (1 - world.end) * (world.following @ v), v


def played(world: World, rng: np.random.Generator, n: int, noise: float) -> tuple[np.ndarray, ...]:
    """States, actions, rewards and numbers of steps of n episodes of the behaviour."""
    rows, steps = list[tuple[int, int, float]](), list[int]()
    for _ in range(n):
        state, began = rng.choice(STATES, p=world.first), len(rows)
        while True:
            action = rng.choice(ACTIONS, p=world.behaviour[state])
            rows.append((state, action, world.reward[state, action] + noise * rng.normal()))
            if rng.random() < world.end[state, action]:
                break
            state = rng.choice(STATES, p=world.following[state, action])
        steps.append(len(rows) - began)
    state, action, reward = map(np.asarray, zip(*rows, strict=True))
    return state, action, reward, np.asarray(steps)


def as_logged(world: World, state: np.ndarray, action: np.ndarray, reward: np.ndarray, steps: np.ndarray) -> World:
    """The world that the logs show: what a Q-function comes to that is fitted to its end."""
    last = np.zeros(len(state), bool)
    last[np.cumsum(steps) - 1] = True
    seen, ended, paid = (np.zeros((STATES, ACTIONS)) for _ in range(3))
    to = np.zeros((STATES, ACTIONS, STATES))
    np.add.at(seen, (state, action), 1)
    np.add.at(ended, (state, action), last)
    np.add.at(paid, (state, action), reward)
    at = np.flatnonzero(~last)
    np.add.at(to, (state[at], action[at], state[at + 1]), 1)
    following = to / np.maximum(to.sum(-1, keepdims=True), 1)
    return world._replace(following=following, reward=paid / np.maximum(seen, 1), end=ended / np.maximum(seen, 1))


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
        state, action, reward, steps = played(world, rng, n, noise)
        q, v = values(as_logged(world, state, action, reward, steps), gamma)
        about: dict[str, Any] = {"q_value": scale * q[state, action], "value": scale * v[state], "gamma": gamma}
        with np.errstate(divide="ignore"):
            judged = np.log(world.judged[state, action])
        behaved = np.log(world.behaviour[state, action]) if known else None
        found = estimate(Logs(scale * reward, steps, behaved, judged, **about), ["DM"], times=200)["DM"]
        assert found.interval is not None
        truth = scale * world.first @ values(world, gamma)[1]
        within += found.interval[0] <= truth <= found.interval[1]
    assert 0.9 <= within / repeats <= 1.0  # of 0.95; by chance alone it is below 0.9 in 3 of 100
