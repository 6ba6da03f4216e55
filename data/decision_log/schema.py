"""Columns of a log: those of decisions and those of outcomes, as the spaces of a problem have them.

A decision is what a policy was shown, what it chose, and with which probability; an outcome is what came of it, told later. Columns
of observations are named as those of datasets: `observation`, or `observation/KEY` of each part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import DataError
from ..spec import Leaf, Spec, space_columns, value_columns

ACTED = ("champion", "canary", "fallback")  # roles whose action was given to who asked
ROLES = (*ACTED, "shadow")  # a shadow is asked beside them, and does nothing
TIME = pa.timestamp("us", "UTC")


def decision_schema(spec: Spec) -> Any:
    """Columns of decisions.

    `id` (WRITER-n), `policy` (its name in the service), `version` (of the policy), `role` (see `ROLES`), `episode` (a key), `step`
    (from 0), `alone` (whether its request named no episode: it is one of one step), `time` (the clock of who wrote it), `reason`
    (why the fallback acted), `log_prob` (of the action under what acted; null where there is no density), `value` (null where none
    is known), the observation as the policy was given it, `action`, and of discrete actions `legal` (flags; null: all are).
    """
    texts = [pa.field(name, pa.string(), nullable=False) for name in ("id", "policy", "version", "role", "episode")]
    fields = [
        *texts,
        pa.field("step", pa.int64(), nullable=False),
        pa.field("alone", pa.bool_(), nullable=False),
        pa.field("time", TIME, nullable=False),
        pa.field("reason", pa.string()),
        pa.field("log_prob", pa.float32()),
        pa.field("value", pa.float32()),
        *(pa.field(name, _type(leaf), nullable=False) for name, leaf in space_columns(spec.observation).items()),
        pa.field("action", _type(spec.action), nullable=False),
    ]
    return pa.schema([*fields, pa.field("legal", pa.list_(pa.uint8(), spec.n_actions))] if spec.discrete else fields)


def outcome_schema(spec: Spec) -> Any:
    """Columns of outcomes.

    `policy`, `episode` and `step`, or `decision` (an id), or both, as far as they are known; `reward`, `cost` (null: not told),
    `terminated`, `truncated`, the observation after the last step (null: none was told), `time`, and `status`: "recorded", or
    "conflict" of one that says something else than an earlier one, which counts.
    """
    return pa.schema(
        [
            pa.field("policy", pa.string()),
            pa.field("episode", pa.string()),
            pa.field("step", pa.int64()),
            pa.field("decision", pa.string()),
            pa.field("reward", pa.float64(), nullable=False),
            pa.field("cost", pa.float64()),
            pa.field("terminated", pa.bool_(), nullable=False),
            pa.field("truncated", pa.bool_(), nullable=False),
            pa.field("time", TIME, nullable=False),
            pa.field("status", pa.string(), nullable=False),
            *(pa.field(name, _flat_type(leaf)) for name, leaf in space_columns(spec.observation).items()),
        ]
    )


def _type(leaf: Leaf) -> Any:
    value = pa.from_numpy_dtype(np.dtype(leaf.dtype))
    return pa.fixed_shape_tensor(value, leaf.shape) if leaf.shape else value


def _flat_type(leaf: Leaf) -> Any:
    value = pa.from_numpy_dtype(np.dtype(leaf.dtype))
    return pa.list_(value, leaf.size) if leaf.shape else value  # a tensor may not be null


def type_names(schema: Any) -> dict[str, str]:
    """Write the types of columns: `float32 [3]`, `string`."""
    return {field.name: _type_name(field.type) for field in schema}


def _type_name(kind: Any) -> str:
    if isinstance(kind, pa.FixedShapeTensorType):
        return f"{kind.value_type} {list(kind.shape)}"
    return f"{kind.value_type} [{kind.list_size}]" if pa.types.is_fixed_size_list(kind) else str(kind)


def arrow_column(values: np.ndarray) -> Any:
    """Turn an array [N, ...] into a column of numbers, or of tensors."""
    whole = np.ascontiguousarray(values)
    return pa.FixedShapeTensorArray.from_numpy_ndarray(whole) if whole.ndim > 1 else pa.array(whole)


def flat_column(values: Sequence[np.ndarray | None], kind: Any) -> Any:
    """Turn N arrays of one size, or None where there is none, into a column of numbers or lists."""
    return pa.array(
        [None if value is None else value.reshape(-1).tolist() if value.ndim else value.item() for value in values], kind
    )


def numpy_column(column: Any) -> np.ndarray:
    """Turn a column into an array [N, ...]; a number that is null becomes NaN, and flags that are null ones."""
    whole = column.combine_chunks()
    parts = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]  # texts may be more than one array can hold
    return np.concatenate([_numpy(part) for part in parts])


def _numpy(array: Any) -> np.ndarray:
    if isinstance(array, pa.FixedShapeTensorArray):
        return array.to_numpy_ndarray()
    if not pa.types.is_fixed_size_list(array.type):
        return array.to_numpy(zero_copy_only=False)
    told = array.drop_null()
    out = np.ones((len(array), array.type.list_size), array.type.value_type.to_pandas_dtype())
    out[np.asarray(array.is_valid())] = told.flatten().to_numpy(zero_copy_only=False).reshape(len(told), out.shape[1])
    return out


def fitted(spec: Spec, observation: Any, action: Any) -> dict[str, np.ndarray]:
    """Give a batch of observations and actions the types of a log. Raises DataError of other parts or shapes, NaN or infinity."""
    given: Mapping[str, Any] = value_columns(observation) | {"action": action}
    leaves = spec.leaves()
    if given.keys() != leaves.keys():
        raise DataError(f"A decision has {', '.join(sorted(leaves))}, and {', '.join(sorted(given))} were given.")
    return {name: fitted_leaf(name, leaf, given[name]) for name, leaf in leaves.items()}


def fitted_leaf(name: str, leaf: Leaf, values: Any) -> np.ndarray:
    """Give one column [N, ...] of a batch its type. Raises DataError."""
    array = np.asarray(values)
    if array.ndim == 0 or array.shape[1:] != leaf.shape:
        raise DataError(f"{name} is of shape {list(array.shape)}; a batch of {list(leaf.shape)} is needed.")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} holds {array.dtype} and no numbers.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"{name} holds NaN or infinity.")
    if np.dtype(leaf.dtype).kind in "iu" and array.dtype.kind == "f" and (array != np.rint(array)).any():
        raise DataError(f"{name} holds fractions, and whole numbers are needed.")
    return array.astype(leaf.dtype, copy=False)
