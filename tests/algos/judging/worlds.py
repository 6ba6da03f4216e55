"""Tabular decision processes whose values linear algebra knows, and what is logged in them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STATES, ACTIONS = 4, 2


class World(NamedTuple):
    """A tabular decision process, who acted in it, and who is judged."""

    following: np.ndarray  # [S, A, S]
    reward: np.ndarray  # [S, A]
    end: np.ndarray  # [S, A], the chance that an episode ends there
    first: np.ndarray  # [S]
    behaviour: np.ndarray  # [S, A]
    judged: np.ndarray  # [S, A]

    @classmethod
    def drawn(
        cls, rng: np.random.Generator, *, alike: bool = False, ends: tuple[float, float] = (0.05, 0.3), near: float = 0.0
    ) -> World:
        """At random.

        Args:
            rng: What draws.
            alike: Whether every episode begins in the first state.
            ends: Within which the chances of an end lie; (1, 1): episodes of one step.
            near: Share of the behaviour in who is judged; the rest is greedy.
        """
        shape = STATES, ACTIONS
        first = np.eye(STATES)[0] if alike else rng.dirichlet(np.ones(STATES))
        end, acts = rng.uniform(*ends, shape), rng.dirichlet(np.ones(ACTIONS) * 3, STATES)
        judged = near * acts + (1 - near) * np.eye(ACTIONS)[rng.integers(0, ACTIONS, STATES)]
        return cls(rng.dirichlet(np.ones(STATES) * 0.7, shape), rng.normal(size=shape), end, first, acts, judged)


def values(world: World, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Q and V of who is judged, by linear algebra."""
    on = np.einsum("sa,sa,sat->st", world.judged, 1 - world.end, world.following)
    v = np.linalg.solve(np.eye(STATES) - gamma * on, (world.judged * world.reward).sum(1))
    return world.reward + gamma * (1 - world.end) * (world.following @ v), v


def played(world: World, rng: np.random.Generator, n: int, noise: float) -> tuple[np.ndarray, ...]:
    """States, actions, rewards and numbers of steps of n episodes of the behaviour, one after the other."""
    state, running = rng.choice(STATES, size=n, p=world.first), np.arange(n)
    columns = list[tuple[np.ndarray, ...]]()
    for step in range(10_000):
        action = (rng.random(len(running))[:, None] > world.behaviour[state].cumsum(1)[:, :-1]).sum(1)
        reward = world.reward[state, action] + noise * rng.normal(size=len(running))
        columns.append((running, np.full(len(running), step), state, action, reward))
        goes_on = rng.random(len(running)) >= world.end[state, action]
        to = world.following[state, action][goes_on]
        running, state = running[goes_on], (rng.random(len(to))[:, None] > to.cumsum(1)[:, :-1]).sum(1)
        if not len(running):
            break
    episode, step, *rest = map(np.concatenate, zip(*columns, strict=True))
    order = np.lexsort((step, episode))
    return *(column[order] for column in rest), np.bincount(episode, minlength=n)


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
