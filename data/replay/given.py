"""What a buffer is given of environments, read into columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DataError
from ..spec import Leaf, value_columns


def columns_of(observation: Any, spaces: Mapping[str, Leaf], n: int) -> dict[str, np.ndarray]:
    """Observations of n environments by column, each of shape [n, ...]. Raises DataError where they do not fit the spaces."""
    parts = value_columns(observation)
    if parts.keys() != spaces.keys():
        raise DataError(f"The spec has the observation columns {sorted(spaces)}; these are {sorted(parts)}.")
    arrays = {name: np.asarray(value) for name, value in parts.items()}
    for name, array in arrays.items():
        if array.shape != (n, *spaces[name].shape):
            raise DataError(f"{name} has shape {list(array.shape)}; {[n, *spaces[name].shape]} is needed.")
    return arrays


def one(values: Any) -> Any:
    """Values of one environment with the axis of environments."""
    if isinstance(values, Mapping):
        return {key: one(value) for key, value in values.items()}
    if isinstance(values, tuple) and any(isinstance(part, np.ndarray | Mapping | tuple) for part in values):
        return tuple(one(part) for part in values)
    return np.asarray(values)[None]
