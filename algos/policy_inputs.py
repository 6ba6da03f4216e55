"""Raw observations as the named inputs of a policy. Imports no torch: exported policies read their input with it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..data.errors import DataError
from ..data.spec import Box, Dict


def named_inputs(space: Box | Dict) -> dict[str, Box]:
    """The inputs of a policy over `space`: `observation`, or one `observation/KEY` for each key, sorted."""
    if isinstance(space, Box):
        return {"observation": space}
    return {f"observation/{key}": space.spaces[key] for key in sorted(space.spaces)}


def raw_inputs(space: Box | Dict, observation: Any) -> dict[str, np.ndarray]:
    """Raw observations [B, ...], an array or a mapping of them, by input name; their types are left as they are.

    Raises:
        DataError: a key is missing or unknown, or a shape is not (batch, *shape of the space).
    """
    if isinstance(space, Box):
        parts = {"observation": observation}
    elif not isinstance(observation, Mapping) or set(observation) != set(space.spaces):
        given = f"the keys {sorted(observation)}" if isinstance(observation, Mapping) else f"a {type(observation).__name__}"
        raise DataError(f"Observations of this policy are a mapping with the keys {sorted(space.spaces)}, not {given}.")
    else:
        parts = {f"observation/{key}": value for key, value in observation.items()}
    inputs = {name: _rows(name, box, np.asarray(parts[name])) for name, box in named_inputs(space).items()}
    if len({len(rows) for rows in inputs.values()}) > 1:
        sizes = ", ".join(f"{name} {len(rows)}" for name, rows in inputs.items())
        raise DataError(f"The parts of an observation have different numbers of rows: {sizes}.")
    return inputs


def _rows(name: str, box: Box, array: np.ndarray) -> np.ndarray:
    if array.ndim != len(box.shape) + 1 or array.shape[1:] != box.shape:
        hint = "; a single one needs a batch axis: x[None]" if array.shape == box.shape else ""
        wanted = ", ".join(("batch", *map(str, box.shape)))
        what = "Observations have" if name == "observation" else f"{name} has"
        raise DataError(f"{what} the shape {array.shape}; this policy takes ({wanted}){hint}.")
    return array
