"""Spaces of environments as specs, and what an environment shows and takes, at the edge of d3ray.

Works by the names of space classes, so that spaces of gymnasium and of classic gym are read alike and neither gym is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ...data.errors import ConfigError, DataError
from ...data.spec import (
    Box,
    Dict,
    Discrete,
    Leaf,
    MultiBinary,
    MultiDiscrete,
    ObservationSpace,
    Spec,
    Tuple,
    kinds_text,
    shapes_of,
    space_columns,
)

Encode = Callable[[Any], Any]


def spec_of(environment: Any) -> Spec:
    """The spec of an environment object: of gymnasium, or of classic gym.

    Observations are Box, Discrete, MultiDiscrete and MultiBinary, and dicts and tuples of these; actions the same but for the
    latter two. float64 becomes float32, as in datasets. Bounds of which an entry is infinite are None: nothing is known that one
    could scale by. Actions of a box with several axes are vectors of all its entries here; `VectorEnvironment` and
    exported policies give them their shape.

    Raises:
        ConfigError: a space of another kind (Text, Sequence, Graph, …), or a dict or tuple of actions.
    """
    observation, action = environment.observation_space, environment.action_space
    if kind_of(action) not in _LEAVES:
        raise ConfigError(f"Actions of kind {kind_of(action)} cannot be recorded; d3ray takes {', '.join(_LEAVES)}.")
    taken = _leaf(action)
    if isinstance(taken, Box) and len(taken.shape) > 1:
        taken = taken.model_copy(update={"shape": (taken.size,), "taken_as": taken.shape})
    return Spec(observation=space_of(observation), action=taken)


_LEAVES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")


def kind_of(space: Any) -> str:
    """Box, Discrete, Dict, … of a space or of a subclass of one."""
    names = [cls.__name__ for cls in type(space).__mro__]
    return next((name for name in (*_LEAVES, "Dict", "Tuple") if name in names), names[0])


def check_spaces(
    shown: Spec, fitted: Spec, name: str, who: str, *, fewer_actions: Literal["shown", "fitted"] | None = None
) -> None:
    """Raise DataError unless observations and actions have the shapes of those that something was fitted on, and images its type.

    `shown` are the spaces of an environment or a dataset called `name`, `fitted` those of `who`. `fewer_actions` says which of the
    two may know fewer discrete actions: a dataset need not have all, nor a policy take them.
    """
    theirs, ours = shapes_of(shown), shapes_of(fitted)
    if fewer_actions and isinstance(shown.action, Discrete) and isinstance(fitted.action, Discrete):
        spare = fitted.action.n - shown.action.n
        if fitted.action.start == shown.action.start and (spare if fewer_actions == "shown" else -spare) >= 0:
            theirs["action"] = ours["action"]
    for column in sorted({*theirs, *ours}):
        if theirs.get(column) != ours.get(column):
            said = f"{name!r} has {_told(column, shown)}, and {who} was fitted on {_told(column, fitted)}"
            apart = theirs.get(column, ())[:-1] == ours.get(column, ())[:-1]  # of all that must be alike, `start` comes last
            raise DataError(f"{said}{': make the data anew, with the spec of the environment.' if apart else '.'}")
    images = space_columns(fitted.observation)
    for column, leaf in space_columns(shown.observation).items():
        if leaf.dtype != images[column].dtype and "uint8" in (leaf.dtype, images[column].dtype) and len(leaf.shape) > 1:
            raise DataError(f"{name!r} has images of {leaf.dtype}, and {who} was fitted on images of {images[column].dtype}.")


def _told(column: str, spec: Spec) -> str:
    what, key = ("actions", "") if column == "action" else ("observations", column.partition("/")[2])
    if (leaf := spec.leaves().get(column)) is None:
        return f"no {what} {key!r}" if key else f"{what} by keys"
    size = kinds_text(leaf) if isinstance(leaf, Discrete | MultiDiscrete) else f"shape {list(leaf.shape)}"
    return f"{what}{f' {key!r}' if key else ''} of {size}"


def encoders(space: Any, name: str = "observation") -> dict[str, tuple[Encode, Encode]]:
    """For each column of a space: how its part is taken out of an observation, and how that becomes an array of the spec."""
    match kind_of(space):
        case "Dict" | "dict":
            inner = getattr(space, "spaces", space)
        case "Tuple":
            inner = dict(enumerate(space.spaces))
        case _:
            return {name: (lambda observation: observation, _encoder(space))}
    return {
        column: (lambda observation, key=key, take=take: take(observation[key]), encode)
        for key, part in inner.items()
        for column, (take, encode) in encoders(part, f"{name}/{key}").items()
    }


def _encoder(space: Any) -> Encode:
    match kind_of(space):
        case "Discrete":
            return int
        case "MultiDiscrete" | "MultiBinary":
            return lambda observation: np.asarray(observation).reshape(-1)
        case _:
            return np.asarray


def space_of(space: Any) -> ObservationSpace:
    """A space of observations, or a mapping of such by key. Raises ConfigError as `spec_of`."""
    match kind_of(space):
        case "Dict" | "dict":
            return Dict(spaces={str(key): space_of(part) for key, part in getattr(space, "spaces", space).items()})
        case "Tuple":
            return Tuple(spaces=tuple(space_of(part) for part in space.spaces))
        case kind if kind in _LEAVES:
            return _leaf(space)
        case kind:
            raise ConfigError(
                f"Observations of kind {kind} cannot be recorded; d3ray takes {', '.join(_LEAVES)}, and dicts and tuples of these."
            )


def _leaf(space: Any) -> Leaf:
    match kind_of(space):
        case "Discrete":
            return Discrete(n=int(space.n), start=int(getattr(space, "start", 0)))
        case "MultiDiscrete":
            nvec = np.asarray(space.nvec)
            start = np.broadcast_to(getattr(space, "start", 0), nvec.shape)  # gymnasium before 1.0 has none
            return MultiDiscrete(nvec=tuple(nvec.reshape(-1).tolist()), start=tuple(start.reshape(-1).tolist()))
        case "MultiBinary":
            return MultiBinary(n=int(np.prod(space.n)))
        case _:
            return _box(space)


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
