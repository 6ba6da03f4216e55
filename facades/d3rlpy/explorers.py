"""d3rlpy's explorers: d3ray's under its names and with its arguments, and users' own."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np

from d3ray.algos.environments import explorers
from d3ray.algos.environments.explorers import read_explorer
from d3ray.data.spec import Leaf, as_recorded


class Explorer:
    """Base of a user's own: `sample` gives the actions at observations."""

    def sample(self, algo: Any, x: Any, step: int) -> Any:
        """Actions [B, ...] of an algorithm that is to explore at observations [B, ...], at a step of the environment."""
        raise NotImplementedError


class _Samples(Explorer):
    def sample(self, algo: Any, x: Any, step: int) -> np.ndarray:
        """What it makes of the algorithm's greedy actions."""
        mine, space = cast("Any", self), algo.spec_.action
        return mine.explore(as_recorded(space, algo.predict(x)), space, step=step, seed=algo.seed)


class ConstantEpsilonGreedy(explorers.ConstantEpsilonGreedy, _Samples):
    """With probability `epsilon` a uniform action."""

    def __init__(self, epsilon: float = 0.1) -> None:
        super().__init__(epsilon=epsilon)


class LinearDecayEpsilonGreedy(explorers.EpsilonGreedy, _Samples):
    """The same with an ε that falls in a straight line."""

    def __init__(self, start_epsilon: float = 1.0, end_epsilon: float = 0.1, duration: int = 1_000_000) -> None:
        super().__init__(start_epsilon=start_epsilon, end_epsilon=end_epsilon, duration=duration)  # pyright: ignore


class NormalNoise(explorers.GaussianNoise, _Samples):
    """Normal noise on the actions."""

    def __init__(self, mean: float = 0.0, std: float = 0.1) -> None:
        super().__init__(mean=mean, std=std)


class _Own(explorers.Explorer):
    """A user's own, with the algorithm that it asks."""

    name: Literal["own"] = "own"
    explorer: Any
    algorithm: Any

    def explore_at(self, observation: Any, proposed: np.ndarray, space: Leaf, *, step: int, seed: int) -> np.ndarray:
        return np.asarray(self.explorer.sample(self.algorithm, observation, step))


def seen_by(explorer: Any, algorithm: Any) -> Any:
    """What d3ray's runs take. None: draws of a stochastic policy, else its own actions, as d3rlpy has it."""
    if explorer is None:
        return "policy" if algorithm.stochastic else "greedy"
    if isinstance(explorer, explorers.Explorer | str | dict):
        return read_explorer(explorer)
    return _Own.model_construct(explorer=explorer, algorithm=algorithm)
