"""What columns are: each one's type and entry shape, the spaces that follow from them, and whether they suit given spaces."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .errors import DataError
from .spec import Box, Dict, Discrete, Spec

Kinds = dict[str, tuple[str, tuple[int, ...]]]  # a column's dtype name and the shape of one entry


def kinds_of(columns: Mapping[str, np.ndarray]) -> Kinds:
    """Type and entry shape of each column."""
    return {name: (column.dtype.name, column.shape[1:]) for name, column in columns.items()}


def largest_action(columns: Mapping[str, np.ndarray]) -> int | None:
    """The largest discrete action; None for continuous ones."""
    action = columns["action"]
    return int(action.max()) if action.ndim == 1 else None


def infer_spec(kinds: Kinds, largest: int | None) -> Spec:
    """Spaces without bounds; the number of discrete actions is the largest one and one."""
    boxes = {name: Box(shape=shape, dtype=dtype) for name, (dtype, shape) in kinds.items()}
    keys = [name for name in kinds if name.startswith("observation/")]
    return Spec(
        observation=Dict(spaces={name.removeprefix("observation/"): boxes[name] for name in keys})
        if keys
        else boxes["observation"],
        action=boxes["action"] if largest is None else Discrete(n=largest + 1),
    )


def check_spec(kinds: Kinds, largest: int | None, spec: Spec) -> None:
    """Whether columns suit the spaces. Numbers may be stored in another type than the environment's own.

    Raises:
        DataError: an observation has another key or shape, actions are of the other kind or shape, or there are too many.
    """
    if isinstance(spec.observation, Dict):
        expected = {f"observation/{key}": box.shape for key, box in spec.observation.spaces.items()}
    else:
        expected = {"observation": spec.observation.shape}
    seen = {name: kind[1] for name, kind in kinds.items() if name.split("/")[0] == "observation"}
    if seen.keys() != expected.keys():
        raise DataError(f"The spec has the observations {_names(expected)} and the data has {_names(seen)}.")
    if isinstance(spec.action, Discrete) != (largest is not None):
        theirs, ours = ("discrete", "continuous") if largest is None else ("continuous", "discrete")
        raise DataError(f"The spec has {theirs} actions and the data has {ours} ones.")
    if isinstance(spec.action, Discrete) and largest is not None and largest >= spec.action.n:
        raise DataError(f"The spec has the actions 0 to {spec.action.n - 1} and the data has action {largest}.")
    for name, shape in [*expected.items(), ("action", spec.action.shape)]:
        if kinds[name][1] != shape:
            raise DataError(f"The spec has the {name} shape {list(shape)} and the data has {list(kinds[name][1])}.")


def _names(columns: Mapping[str, object]) -> str:
    return ", ".join(repr(name) for name in sorted(columns))
