"""Spaces of environments as specs, and what an environment shows and takes, at the edge of d3ray.

Works by the names of space classes, so that spaces of gymnasium and of classic gym are read alike and neither gym is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...data.errors import ConfigError
from ...data.spec import Box, Dict, Discrete, Spec

Encode = Callable[[Any], np.ndarray]


def spec_of(environment: Any) -> Spec:
    """The spec of an environment object: of gymnasium, or of classic gym.

    Observations are boxes or dicts of boxes; float64 becomes float32, as in datasets. A discrete observation (FrozenLake's) is a
    box of n zeros and a one. Actions are a box or discrete, counted from 0 whatever the space's `start`. Bounds of which an entry
    is infinite are None: nothing is known that one could scale by.

    Raises:
        ConfigError: a space of another kind (Tuple, MultiDiscrete, …).
    """
    observation, action = environment.observation_space, environment.action_space
    match kind_of(action):
        case "Box":
            action_spec: Box | Discrete = _box(action)
        case "Discrete":
            action_spec = Discrete(n=int(action.n))
        case kind:
            raise ConfigError(f"Actions of kind {kind} cannot be learned; d3ray takes Box and Discrete.")
    if kind_of(observation) == "Dict":
        return Spec(
            observation=Dict(spaces={str(k): _observation_box(s) for k, s in observation.spaces.items()}), action=action_spec
        )
    return Spec(observation=_observation_box(observation), action=action_spec)


def kind_of(space: Any) -> str:
    """Box, Discrete, Dict, … of a space or of a subclass of one."""
    names = [cls.__name__ for cls in type(space).__mro__]
    return next((name for name in ("Box", "Discrete", "Dict") if name in names), names[0])


def encoder(space: Any) -> Encode:
    """What turns an observation of `space` (not a Dict) into an array of the spec."""
    if kind_of(space) == "Discrete":
        n, start = int(space.n), int(getattr(space, "start", 0))
        eye = np.eye(n, dtype=np.float32)
        return lambda observation: eye[int(observation) - start]
    return np.asarray


def _observation_box(space: Any) -> Box:
    match kind_of(space):
        case "Box":
            return _box(space)
        case "Discrete":
            return Box(shape=(int(space.n),), low=0.0, high=1.0)
        case kind:
            raise ConfigError(f"Observations of kind {kind} cannot be learned from; d3ray takes Box, Discrete and dicts of these.")


def _box(space: Any) -> Box:
    dtype = np.dtype(space.dtype)
    low, high = (np.asarray(bound, np.float64) for bound in (space.low, space.high))
    shape = tuple(space.shape) or (1,)  # a number is a vector of one
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return Box(shape=shape, dtype=_stored(dtype))
    return Box(shape=shape, dtype=_stored(dtype), low=_brief(low), high=_brief(high))


def _stored(dtype: np.dtype[Any]) -> str:
    return "float32" if dtype.kind == "f" else "uint8" if dtype.kind == "b" else dtype.name


def _brief(bound: np.ndarray) -> float | tuple[float, ...]:
    """One number where all entries share it: image bounds are 84 · 84 times 255."""
    entries = bound.reshape(-1)
    return float(entries[0]) if entries.size and (entries == entries[0]).all() else tuple(entries.tolist())
