"""RLlib's states as tensors and JSON, so that a checkpoint holds no pickle: nested containers of numbers, texts and arrays."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.errors import StorageError

_LONG = 16  # lists of numbers from this length on are kept as one tensor
_INTEGERS, _FLOATS = {int, np.int64}, {float, np.float64}
_PLAIN = frozenset("fiub")  # kinds of NumPy types that a tensor may have


def encode(state: Any, prefix: str) -> tuple[dict[str, Tensor], Any]:
    """Tensors by name, and JSON that says what they are parts of.

    Args:
        state: None, bools, numbers, texts, NumPy arrays and scalars, tensors, and dicts, lists, tuples, sets and deques of these.
        prefix: Of the tensors' names.

    Raises:
        StorageError: something else is in it; the sentence says where.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _encode(state, prefix, tensors)


def decode(tensors: Mapping[str, Tensor], tree: Any) -> Any:  # noqa: PLR0911, PLR0912 - a kind a line
    """Decode what `encode` made, types included; but a defaultdict becomes a dict, and NumPy's numbers in long lists plain ones."""
    if not isinstance(tree, dict):
        return tree
    ((kind, held),) = tree.items()
    match kind:
        case "dict":
            return {decode(tensors, key): decode(tensors, value) for key, value in held}
        case "list" | "tuple" | "set":
            return {"list": list, "tuple": tuple, "set": set}[kind](decode(tensors, part) for part in held)
        case "deque":
            return deque(decode(tensors, held[1]), held[0])
        case "float":
            return float(held)
        case "scalar":
            return np.dtype(held[0]).type(decode(tensors, held[1]))
        case "tensor":
            return tensors[held]
        case "array":
            return tensors[held].numpy()
        case "bytes":  # of a type that torch does not know
            return np.frombuffer(tensors[held[0]].numpy().tobytes(), np.dtype(held[1])).reshape(held[2]).copy()
        case "objects":
            array = np.empty(held[0], object)
            array.reshape(-1)[:] = [decode(tensors, part) for part in held[1]]
            return array
        case "numbers":
            return tensors[held].tolist()
        case "pairs":
            return [tuple(row) for row in tensors[held].tolist()]
        case "arrays":
            return list(tensors[held].numpy())
        case "empty":
            return [{} for _ in range(held)]
        case _:
            raise StorageError(f"A checkpoint of RLlib holds {kind!r}, which this version of d3ray does not know: use a newer one.")


def _encode(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:  # noqa: PLR0911 - a kind a line
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().clone()
        return {"tensor": name}
    if isinstance(value, np.ndarray):
        return _array(value, name, tensors)
    if isinstance(value, np.generic):
        return {"scalar": [value.dtype.str, _encode(value.item(), name, tensors)]}
    if isinstance(value, Mapping):
        parts = [(key, _part(name, key)) for key in value]
        return {"dict": [[_encode(key, f"{path}#", tensors), _encode(value[key], path, tensors)] for key, path in parts]}
    if isinstance(value, deque):
        return {"deque": [value.maxlen, _sequence(list(value), name, tensors)]}
    if type(value) in (list, tuple, set, frozenset):
        return _sequence(value, name, tensors)
    raise StorageError(f"RLlib's state has a {type(value).__name__} at {name}, which a checkpoint cannot hold.")


def _array(value: np.ndarray, name: str, tensors: dict[str, Tensor]) -> Any:
    if value.dtype == object:
        return {"objects": [list(value.shape), [_encode(part, f"{name}/{i}", tensors) for i, part in enumerate(value.reshape(-1))]]}
    if value.dtype.kind in _PLAIN and value.dtype.isnative and not (value.dtype.kind == "u" and value.dtype.itemsize > 1):
        tensors[name] = torch.from_numpy(np.array(value))
        return {"array": name}
    tensors[name] = torch.from_numpy(np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8).copy())
    return {"bytes": [name, value.dtype.str, list(value.shape)]}


def _sequence(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    kind = type(value).__name__.removeprefix("frozen")
    if kind == "list" and len(value) >= _LONG and (found := _homogeneous(value, name, tensors)) is not None:
        return found
    return {kind: [_encode(part, f"{name}/{i}", tensors) for i, part in enumerate(value)]}


def _homogeneous(value: list[Any], name: str, tensors: dict[str, Tensor]) -> Any:
    """A long list of things of one kind as one tensor: what a replay buffer mostly is."""
    kinds = {type(part) for part in value}
    if kinds <= _INTEGERS and all(-(2**63) <= part < 2**63 for part in value):
        tensors[name] = torch.tensor(value, dtype=torch.int64)
        return {"numbers": name}
    if kinds <= _FLOATS:
        tensors[name] = torch.tensor(value, dtype=torch.float64)
        return {"numbers": name}
    if kinds == {tuple} and len({len(part) for part in value}) == 1 and {type(x) for part in value for x in part} <= _INTEGERS:
        tensors[name] = torch.tensor(value, dtype=torch.int64)
        return {"pairs": name}
    if kinds == {dict} and not any(value):
        return {"empty": len(value)}
    if kinds == {np.ndarray} and len({(part.dtype.str, part.shape) for part in value}) == 1 and value[0].dtype != object:
        stacked = _array(np.stack(value), name, tensors)
        return {"arrays": name} if "array" in stacked else None
    return None


def _part(name: str, key: Any) -> str:
    return f"{name}/{key}" if isinstance(key, str | int) else f"{name}/{key!r}"
