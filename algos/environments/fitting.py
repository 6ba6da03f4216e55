"""In which environments recorded steps may have been taken: of gymnasium's own that can be made here, by shapes and bounds."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from ...data import spec as specs
from ...data.dataset import Dataset
from ...data.spec import Discrete, Spec, shapes_of
from ...data.storage.statistics import Moments
from .spaces import spec_of

_ROUNDING = 1e-3
_MUJOCO = {  # entries of an observation, entries of an action and their bound: to make one takes time, and MuJoCo prints and logs
    "Ant-v5": (105, 8, 1.0),
    "HalfCheetah-v5": (17, 6, 1.0),
    "Hopper-v5": (11, 3, 1.0),
    "Humanoid-v5": (348, 17, 0.4),
    "HumanoidStandup-v5": (348, 17, 0.4),
    "InvertedDoublePendulum-v5": (9, 1, 1.0),
    "InvertedPendulum-v5": (4, 1, 3.0),
    "Pusher-v5": (23, 7, 2.0),
    "Reacher-v5": (10, 2, 1.0),
    "Swimmer-v5": (8, 2, 1.0),
    "Walker2d-v5": (17, 6, 1.0),
}


def fitting(dataset: Dataset) -> list[str]:
    """Ids of the newest versions that have the data's shapes, and bounds within which all of the data lie."""
    spec, statistics = dataset.spec, dataset.statistics
    if not isinstance(spec.observation, Discrete) and not (
        isinstance(spec.observation, specs.Box) and len(spec.observation.shape) == 1
    ):
        return []
    seen = cast("Moments", statistics.observation)
    return [
        name
        for name, (known, observation, action) in _known().items()
        if shapes_of(known) == shapes_of(spec) and _holds(observation, seen) and _holds(action, statistics.action)
    ]


def _holds(space: Any, seen: Moments | None) -> bool:
    if seen is None or not hasattr(space, "low"):
        return True
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
    return bool((np.asarray(seen.min) >= low - _ROUNDING).all() and (np.asarray(seen.max) <= high + _ROUNDING).all())


@functools.cache
def _known() -> dict[str, tuple[Spec, Any, Any]]:
    newest = dict[str, Any]()
    for one in gymnasium.registry.values():
        where = str(one.entry_point)
        if one.namespace is None and where.startswith("gymnasium.envs.") and ".mujoco" not in where and one.version is not None:
            before = newest.get(one.name)
            newest[one.name] = one if before is None or one.version > before.version else before
    found = dict[str, tuple[Spec, Any, Any]]()
    for one in newest.values():
        with suppress(Exception), warnings.catch_warnings():  # a package is not installed, or it is of no use any more
            warnings.simplefilter("ignore")
            environment = gymnasium.make(one.id, disable_env_checker=True)
            found[one.id] = _spaces(environment)
            environment.close()
    if importlib.util.find_spec("mujoco") is not None:
        found |= {name: _of_mujoco(*numbers) for name, numbers in _MUJOCO.items() if name in gymnasium.registry}
    return found


def _of_mujoco(seen: int, taken: int, bound: float) -> tuple[Spec, Any, Any]:
    spaces = {"observation_space": Box(-np.inf, np.inf, (seen,), np.float64), "action_space": Box(-bound, bound, (taken,))}
    return _spaces(SimpleNamespace(**spaces))


def _spaces(environment: Any) -> tuple[Spec, Any, Any]:
    return spec_of(environment), environment.observation_space, environment.action_space
