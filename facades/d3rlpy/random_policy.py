"""d3rlpy's random policies, which collect data and learn nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from d3ray.algos.registry import algorithm_class
from d3ray.data.errors import ConfigError

from .constants import drawn_seed
from .dataset import create_fifo_replay_buffer


class _Random:
    """Actions that depend on nothing."""

    def __init__(self, kind: str, config: Any) -> None:
        self._kind, self.config, self._seed = kind, config, drawn_seed()
        self._rng = np.random.default_rng(self._seed)
        self._size: int | None = None

    def create_impl(self, observation_shape: Any, action_size: int) -> None:
        """Tells it how many entries an action has, or how many there are."""
        self._size = action_size

    def collect(self, env: Any, buffer: Any = None, *positional: Any, n_steps: int = 1_000_000, **arguments: Any) -> Any:
        """Acts for so many steps, uniformly in the environment's space, and gives the buffer."""
        buffer = create_fifo_replay_buffer(1_000_000, env=env) if buffer is None else buffer
        untrained = algorithm_class(self._kind)(seed=self._seed)  # which acts at random
        untrained.collect(env, getattr(buffer, "ring", buffer), n_steps=n_steps, **arguments)
        return buffer

    def predict(self, x: Any) -> np.ndarray:
        """Actions at observations [B, ...], once `create_impl` has told their size. Raises ConfigError before."""
        if self._size is None:
            raise ConfigError("This random policy does not know the size of actions yet: call create_impl.")
        if self._kind == "DiscreteBC":
            return self._rng.integers(0, self._size, len(x))
        if self.config.distribution == "uniform":
            return self._rng.uniform(-1, 1, (len(x), self._size)).astype(np.float32)
        drawn = self._rng.normal(0, self.config.normal_std, (len(x), self._size))
        return drawn.clip(-1, 1).astype(np.float32)

    sample_action = predict

    def fit(self, *positional: Any, **arguments: Any) -> None:
        """Refused: there is nothing to learn."""
        raise ConfigError("A random policy learns nothing: collect is what it is for.")


@dataclass
class RandomPolicyConfig:
    """Continuous actions, uniform in [-1, 1] or normal; `collect` draws them uniformly from the environment's space."""

    distribution: Literal["uniform", "normal"] = "uniform"
    normal_std: float = 1.0

    def create(self, device: Any = False) -> _Random:
        """The policy."""
        return _Random("BC", self)


@dataclass
class DiscreteRandomPolicyConfig:
    """Discrete actions, uniform."""

    def create(self, device: Any = False) -> _Random:
        """The policy."""
        return _Random("DiscreteBC", self)
