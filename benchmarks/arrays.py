"""Arrays that both sides of a benchmark are fed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from d3ray.algos.environments.collect import collect
from d3ray.data.dataset import Dataset
from d3ray.data.spec import Box, Discrete, Spec


def hopper_like(n: int, seed: int = 0) -> Dataset:
    """`n` transitions of Hopper's shapes: observation 11, action 3 in [-1, 1], 200 to 1,000 steps an episode. It is noise."""
    return _noise(n, 11, 3, (200, 1_000), seed)


def walker_like(n: int, seed: int = 0) -> Dataset:
    """`n` transitions of the shapes of Walker2d and HalfCheetah: observation 17, action 6 in [-1, 1]. It is noise."""
    return _noise(n, 17, 6, (200, 1_000), seed)


def cartpole_like(n: int, seed: int = 0) -> Dataset:
    """`n` transitions of CartPole's shapes: observation 4, two actions, 10 to 200 steps an episode. It is noise."""
    return _noise(n, 4, None, (10, 200), seed)


class Balancing:
    """A policy that balances CartPole's pole for all 500 steps: it pushes to where x/10 + 3 x'/10 + θ + θ' is positive."""

    def start(self, n: int) -> None:
        """Nothing is remembered of an episode."""

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        return None, (observation @ np.array([0.1, 0.3, 1.0, 1.0]) > 0).astype(np.int64)


def half_random(n_steps: int = 1_500) -> Dataset:
    """CartPole played by `Balancing`, half of whose actions are replaced with uniform ones: poor data, in which all can be seen.

    It is a function of the environment's dynamics alone, and its fingerprint tells whether it is the same somewhere else.
    """
    wandering = {"name": "constant_epsilon_greedy", "epsilon": 0.5}
    return collect("CartPole-v1", Balancing(), n_steps=n_steps, n_envs=10, explorer=wandering, name="half-random-cartpole")


def frames_like(n: int, seed: int = 0) -> Dataset:
    """`n` transitions of an Atari game's shapes: frames [1, 84, 84] of bytes, four actions, 500 steps an episode. It is noise."""
    rng = np.random.default_rng(seed)
    end = (np.arange(n) % 500 == 499) | (np.arange(n) == n - 1)
    return Dataset.from_arrays(
        rng.integers(0, 256, (n, 1, 84, 84), np.uint8),
        rng.integers(0, 4, n),
        rng.standard_normal(n, np.float32),
        np.zeros(n, bool),
        end,
        final_observations=rng.integers(0, 256, (int(end.sum()), 1, 84, 84), np.uint8),
        name="noise-frames",
    )


def _noise(n: int, size: int, action: int | None, lengths: tuple[int, int], seed: int) -> Dataset:
    """Episodes that reach the longest length are truncated with their final observation recorded; the others terminate."""
    rng = np.random.default_rng(seed)
    length = rng.integers(lengths[0], lengths[1] * 2, n // lengths[0] + 1).clip(max=lengths[1])
    last = np.cumsum(length)
    last = np.r_[last[last < n], n] - 1
    end = np.zeros(n, bool)
    end[last] = True
    cut = np.zeros(n, bool)
    cut[last] = np.diff(np.r_[-1, last]) == lengths[1]
    cut[-1] = True
    return Dataset.from_arrays(
        rng.standard_normal((n, size), np.float32),
        rng.integers(0, 2, n) if action is None else rng.uniform(-1, 1, (n, action)).astype(np.float32),
        rng.standard_normal(n, np.float32),
        end & ~cut,
        cut,
        final_observations=rng.standard_normal((len(last), size), np.float32),
        spec=Spec(observation=Box(shape=(size,)), action=Discrete(n=2) if action is None else Box(shape=(action,), low=-1, high=1)),
        name=f"noise-{size}",
    )


def for_peer(dataset: Dataset, path: Path) -> None:
    """An .npz file that makes of d3rlpy's MDPDataset exactly our transitions.

    d3rlpy takes the next observation from the next row and never draws the last row of a truncated episode. So such an episode is
    handed over with its closing row, where that was recorded: the closing row is the one that is not drawn.
    """
    table = dataset.to_steps()
    observation = table.columns["observation"]
    keep = np.ones(len(observation), bool)
    closing = table.first_row + table.steps
    keep[closing] = ~table.terminated & table.final_recorded
    timeout = np.zeros(len(observation), np.float32)
    truncated = ~table.terminated
    timeout[np.where(table.final_recorded, closing, closing - 1)[truncated]] = 1
    action, terminal = table.columns["action"], table.columns["terminated"].astype(np.float32)
    np.savez(
        path,
        observations=observation[keep].astype(np.uint8 if observation.dtype == np.uint8 else np.float32),
        actions=action[keep].reshape(-1, 1) if action.ndim == 1 else action[keep].astype(np.float32),
        rewards=table.columns["reward"][keep].reshape(-1, 1).astype(np.float32),
        terminals=terminal[keep],
        timeouts=timeout[keep],
    )
