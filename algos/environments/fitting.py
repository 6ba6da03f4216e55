"""In which environments recorded steps may have been taken: of gymnasium's own that can be made here, by shapes and bounds."""

from __future__ import annotations

import functools
import warnings
from contextlib import suppress
from typing import Any, cast

import gymnasium
import numpy as np

from ...data.dataset import Dataset
from ...data.spec import Box, Discrete, Spec, shapes_of
from ...data.storage.statistics import Moments
from .spaces import spec_of

_ROUNDING = 1e-3


def fitting(dataset: Dataset) -> list[str]:
    """Ids of the newest versions that have the data's shapes, and bounds within which all of the data lie."""
    spec, statistics = dataset.spec, dataset.statistics
    if not isinstance(spec.observation, Discrete) and not (isinstance(spec.observation, Box) and len(spec.observation.shape) == 1):
        return []
    seen = cast("Moments", statistics.observation)
    return [
        name
        for name, (known, observation, action) in _known().items()
        if shapes_of(known) == shapes_of(spec) and _holds(observation, seen) and _holds(action, statistics.action)
    ]


def _holds(space: Any, seen: Moments | None) -> bool:
    """Whether what was seen lies within the bounds that a space has."""
    if seen is None or not hasattr(space, "low"):
        return True
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
    return bool((np.asarray(seen.min) >= low - _ROUNDING).all() and (np.asarray(seen.max) <= high + _ROUNDING).all())


@functools.cache
def _known() -> dict[str, tuple[Spec, Any, Any]]:
    """Spec and spaces by id; it takes a second."""
    newest = dict[str, Any]()
    for one in gymnasium.registry.values():
        if one.namespace is None and str(one.entry_point).startswith("gymnasium.envs.") and one.version is not None:
            before = newest.get(one.name)
            newest[one.name] = one if before is None or one.version > before.version else before
    found = dict[str, tuple[Spec, Any, Any]]()
    for one in newest.values():
        with suppress(Exception), warnings.catch_warnings():  # a package is not installed, or it is of no use any more
            warnings.simplefilter("ignore")
            environment = gymnasium.make(one.id, disable_env_checker=True)
            found[one.id] = spec_of(environment), environment.observation_space, environment.action_space
            environment.close()
    return found
