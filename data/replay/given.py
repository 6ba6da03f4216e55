"""What a buffer is given of environments, read into columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DataError
from ..masks import ACTION_MASK, Masked, bare, parted
from ..spec import Leaf, value_columns
from ..storage.checks import as_array


def columns_of(observation: Any, spaces: Mapping[str, Leaf], n: int, *, final: bool = False) -> dict[str, np.ndarray]:
    """Read observations of n environments by column, each of shape [n, ...], and their masks where `spaces` has them.

    All actions are legal where a mask is not given, and of `final` observations where it has none. Raises DataError.
    """
    parts = value_columns(parted(observation) if ACTION_MASK in spaces else bare(observation))
    if ACTION_MASK in spaces:
        parts.setdefault(ACTION_MASK, np.ones((n, *spaces[ACTION_MASK].shape), np.uint8))
    if parts.keys() != spaces.keys():
        raise DataError(f"The spec has the observation columns {sorted(spaces)}; these are {sorted(parts)}.")
    arrays = {name: as_array(name, value) for name, value in parts.items()}
    for name, array in arrays.items():
        if array.shape != (n, *spaces[name].shape):
            raise DataError(f"{name} has shape {list(array.shape)}; {[n, *spaces[name].shape]} is needed.")
    if ACTION_MASK in arrays and not (some := arrays[ACTION_MASK].any(1, keepdims=True)).all():
        if not final:
            raise DataError(f"{ACTION_MASK} has no legal action in row {int(some.argmin())}.")
        arrays[ACTION_MASK] = np.where(some, arrays[ACTION_MASK], 1)
    return arrays


def one(values: Any) -> Any:
    """Add the axis of environments to the values of one."""
    if isinstance(values, Masked):
        return Masked(one(values.observation), one(values.action_mask))
    if isinstance(values, Mapping):
        return {key: one(value) for key, value in values.items()}
    if isinstance(values, tuple) and any(isinstance(part, np.ndarray | Mapping | tuple) for part in values):
        return tuple(one(part) for part in values)
    return as_array("What was given", values)[None]
