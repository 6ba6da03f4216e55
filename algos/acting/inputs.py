"""Raw observations as the named inputs of a policy. Imports no torch: exported policies read their input with it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...data.errors import DataError
from ...data.spec import Box, Discrete, Leaf, ObservationSpace, Spec, space_columns, value_columns


def named_inputs(space: ObservationSpace) -> dict[str, Leaf]:
    """The inputs of a policy over `space`: `observation`, or one `observation/KEY` for each leaf, sorted."""
    return dict(sorted(space_columns(space).items()))


def action_dtype(spec: Spec) -> str:
    """Type of the actions that an exported policy gives: that of the data."""
    if not isinstance(spec.action, Box):
        return "int64"
    return spec.action.dtype if spec.action.dtype in ("float32", "float64") else "float32"


def raw_inputs(space: ObservationSpace, observation: Any) -> dict[str, np.ndarray]:
    """Raw observations [B, ...], an array or mappings and tuples of them, by input name; their types are left as they are.

    Raises:
        DataError: a key is missing or unknown, a shape is not (batch, *shape of the space), or an image of bytes comes as floats.
    """
    wanted, parts = named_inputs(space), {"observation": observation}
    if "observation" not in wanted and (parts := value_columns(observation)).keys() != wanted.keys():
        keys, given = ([name.partition("/")[2] for name in sorted(names)] for names in (wanted, parts))
        found = f"the keys {given}" if isinstance(observation, Mapping | tuple) else f"a {type(observation).__name__}"
        raise DataError(f"Observations of this policy are a mapping with the keys {keys}, not {found}.")
    inputs = {name: _rows(name, box, np.asarray(parts[name])) for name, box in wanted.items()}
    if len({len(rows) for rows in inputs.values()}) > 1:
        sizes = ", ".join(f"{name} {len(rows)}" for name, rows in inputs.items())
        raise DataError(f"The parts of an observation have different numbers of rows: {sizes}.")
    return inputs


def _rows(name: str, box: Leaf, array: np.ndarray) -> np.ndarray:
    if array.ndim != len(box.shape) + 1 or array.shape[1:] != box.shape:
        hint = "; a single one needs a batch axis: x[None]" if array.shape == box.shape else ""
        wanted = ", ".join(("batch", *map(str, box.shape)))
        what = "Observations have" if name == "observation" else f"{name} has"
        raise DataError(f"{what} the shape {array.shape}; this policy takes ({wanted}){hint}.")
    if isinstance(box, Box) and box.is_image and array.dtype.kind == "f":
        raise DataError(f"{name} is an image of bytes, 0 to 255, and {array.dtype} was given: hand in what was shown, unscaled.")
    return array


def raw_actions(space: Leaf, action: Any, count: int) -> np.ndarray:
    """Raw actions, one for each of `count` observations. Raises DataError where they are of another shape or range."""
    array = np.asarray(action)
    if array.shape != (count, *space.shape):
        raise DataError(f"Actions have the shape {array.shape}; {count} observations go with {(count, *space.shape)}.")
    if isinstance(space, Discrete) and not (np.equal(np.mod(array, 1), 0) & (array >= 0) & (array < space.n)).all():
        raise DataError(f"Actions are whole numbers from 0 to {space.n - 1} here; these reach from {array.min()} to {array.max()}.")
    return array
