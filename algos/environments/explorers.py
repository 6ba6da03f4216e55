"""How an online run departs from what its policy proposes.

Every draw is addressed by (seed, step), so a resumed run draws what an uninterrupted one would have drawn.
"""

from __future__ import annotations

import functools
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field

from ...data.config import Config, setting
from ...data.errors import ConfigError
from ...data.random import fold, normal, root_key, uniform
from ...data.spec import Box, Discrete, Leaf

BLOCK = 64  # steps whose numbers are drawn at once; changes no value, and makes the cost of a draw vanish


def random_actions(space: Leaf, n: int, *, step: int, seed: int) -> np.ndarray:
    """Uniform actions for n environments, of the types that datasets have; standard normal where a box has no bounds.

    int64 [n] for discrete, int64 [n, K] for multi-discrete, uint8 [n, N] for binary and float32 [n, *shape] for continuous ones.
    """
    if isinstance(space, Discrete):
        return (_uniform(seed, "random action", step, n) * space.n).astype(np.int64)
    if not isinstance(space, Box):
        kinds = space.bounds()[1] + 1
        return (_uniform(seed, "random action", step, n * space.size).reshape(n, -1) * kinds).astype(space.dtype)
    shape, bounds = (n, *space.shape), _bounds(space)  # pyright: ignore[reportArgumentType]
    if bounds is None:
        return _normal(seed, "random action", step, n * space.size).reshape(shape).astype(np.float32)
    return (bounds.low + _uniform(seed, "random action", step, n * space.size).reshape(shape) * bounds.range).astype(np.float32)


class Greedy(Config):
    """The policy's own actions."""

    name: Literal["greedy"] = "greedy"

    def explore(self, action: np.ndarray, space: Leaf, *, step: int, seed: int) -> np.ndarray:
        """`action` [n, ...] as it is."""
        return action


class EpsilonGreedy(Config):
    """With probability ε a uniform action; ε falls linearly from `start` to `end` over `duration` steps and stays there."""

    name: Literal["epsilon_greedy"] = "epsilon_greedy"
    start: float = setting(1.0, "ε of the first step", source="DQN (Mnih et al. 2015), extended data table 1", ge=0, le=1)
    end: float = setting(0.1, "ε from `duration` on", source="DQN (Mnih et al. 2015), extended data table 1", ge=0, le=1)
    duration: int = setting(
        1_000_000, "steps of each environment until `end`", source="DQN (Mnih et al. 2015), extended data table 1", gt=0
    )

    def epsilon(self, step: int) -> float:
        """ε of a step."""
        return self.start + (self.end - self.start) * min(step / self.duration, 1.0)

    def explore(self, action: np.ndarray, space: Leaf, *, step: int, seed: int) -> np.ndarray:
        """Raw actions [n, ...] of which about ε·n are replaced."""
        wander = _uniform(seed, "epsilon greedy", step, len(action)) < self.epsilon(step)
        if not wander.any():
            return action
        return np.where(
            wander.reshape(-1, *[1] * (action.ndim - 1)), random_actions(space, len(action), step=step, seed=seed), action
        )


class GaussianNoise(Config):
    """Normal noise on continuous actions, clipped to their range. Unbounded actions get it in their own unit, unclipped."""

    name: Literal["gaussian"] = "gaussian"
    std: float = setting(
        0.1, "standard deviation, in halves of each entry's range", source="TD3 (Fujimoto et al. 2018), appendix C", ge=0
    )

    def explore(self, action: np.ndarray, space: Leaf, *, step: int, seed: int) -> np.ndarray:
        """Raw actions [n, *shape] plus noise. Raises ConfigError where actions are discrete."""
        if not isinstance(space, Box):
            raise ConfigError("The explorer 'gaussian' needs continuous actions; did you mean 'epsilon_greedy'?")
        noise = self.std * _normal(seed, "gaussian noise", step, action.size).reshape(action.shape)
        if (bounds := _bounds(space)) is None:  # pyright: ignore[reportArgumentType]
            return (action + noise).astype(action.dtype)
        return np.clip(action + noise * (bounds.range / 2), bounds.low, bounds.high).astype(action.dtype)


Explorer = Annotated[EpsilonGreedy | GaussianNoise | Greedy, Field(discriminator="name")]


class _Bounds(NamedTuple):
    low: np.ndarray
    high: np.ndarray
    range: np.ndarray


@functools.lru_cache(maxsize=32)
def _bounds(space: Box) -> _Bounds | None:
    bounds = space.bounds()
    return None if bounds is None else _Bounds(*bounds, bounds[1] - bounds[0])


def _uniform(seed: int, purpose: str, step: int, count: int) -> np.ndarray:
    return _block(seed, purpose, step // BLOCK, count, gaussian=False)[step % BLOCK]


def _normal(seed: int, purpose: str, step: int, count: int) -> np.ndarray:
    return _block(seed, purpose, step // BLOCK, count, gaussian=True)[step % BLOCK]


@functools.lru_cache(maxsize=64)
def _block(seed: int, purpose: str, block: int, count: int, *, gaussian: bool) -> np.ndarray:
    """[BLOCK, count] float64 numbers of the block's steps; float64 so that floor(u · n) stays below n."""
    keys = fold(fold(root_key(seed), purpose), torch.arange(block * BLOCK, (block + 1) * BLOCK))
    return (normal if gaussian else uniform)(keys, (count,), torch.float64).numpy()
