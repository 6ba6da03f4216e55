"""Setting an algorithm up before it is trained: from a dataset, an environment, or the shapes alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ...data.errors import ConfigError
from ...data.spec import Box, Dict, Discrete, ObservationSpace, Spec, Tuple
from ..environments.make import is_given, make
from .fit import Fit

if TYPE_CHECKING:
    from ...data.dataset import Dataset
    from ..base import Algorithm


def build_with_dataset(algorithm: Algorithm, dataset: Dataset) -> None:
    """Checks the settings and the data, fits the scalers and builds the networks, as `fit` does first."""
    _warn_if_built(algorithm)
    algorithm.fit_ = Fit.start(algorithm, dataset, (algorithm.seed,))


def build_with_env(algorithm: Algorithm, env: Any) -> None:
    """The same for the spaces of an environment, as for `environments.make`; an object that is given is left open."""
    _warn_if_built(algorithm)
    vector = make(env)
    try:
        name = getattr(getattr(vector.single, "spec", None), "id", None) or "the environment"
        algorithm.fit_ = Fit.start_online(algorithm, vector.spec, name)
    finally:
        if not is_given(env):
            vector.close()


def build_with_shapes(algorithm: Algorithm, observation_shape: Any, action_size: int) -> None:
    """The same for shapes alone. See `Algorithm.create_impl`."""
    if not isinstance(observation_shape, Iterable) or isinstance(observation_shape, str):
        raise ConfigError(
            f"observation_shape is {observation_shape!r}; it is a shape, as (4,), or a mapping or sequence of shapes."
        )
    _warn_if_built(algorithm)
    action = Discrete(n=action_size) if algorithm.actions == "discrete" else Box(shape=(action_size,))
    spec = Spec(observation=_space(observation_shape), action=action)
    algorithm.fit_ = Fit.start_online(algorithm, spec, "these shapes", as_seen=True)


def _space(shape: Any) -> ObservationSpace:
    """A shape, a mapping of shapes or a sequence of shapes as a space."""
    if isinstance(shape, Mapping):
        return Dict(spaces={key: _space(part) for key, part in cast("Mapping[str, Any]", shape).items()})
    if any(isinstance(part, Sequence | Mapping) for part in shape):
        return Tuple(spaces=tuple(map(_space, shape)))
    return Box(shape=tuple(shape), dtype="uint8" if len(shape) == 3 else "float32")


def _warn_if_built(algorithm: Algorithm) -> None:
    if hasattr(algorithm, "fit_"):
        warnings.warn(f"This {algorithm.name} was set up already; its networks begin anew.", stacklevel=4)
