"""Minari's JSON of a gymnasium space: as a space of d3ray, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import DataError
from ...spec import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple, space_columns, starts
from ...storage.json_text import parse_json

Json = dict[str, Any]


def parse_space(text: Any, where: str) -> Json:
    """Parse the JSON of a space. Raises DataError where Minari does not write such."""
    try:
        space: Any = parse_json(text) if isinstance(text, str) else text
        to_spec(space)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise DataError(f"{where} is not the JSON of a space as Minari writes it.") from None
    return space


def leaves(space: Json, name: str = "") -> dict[str, Json]:
    """List the leaves of a space by their places, such as "camera/left" or "0"; a single one is named ""."""
    match space["type"]:
        case "Dict":
            inner = dict(space["subspaces"])
        case "Tuple":
            inner = {str(k): part for k, part in enumerate(space["subspaces"])}
        case _:
            return {name: space}
    return {k: leaf for key, part in inner.items() for k, leaf in leaves(part, f"{name}/{key}" if name else key).items()}


def shape_of(leaf: Json) -> tuple[int, ...] | None:
    """Return the shape of a leaf's entries; None for text."""
    match leaf["type"]:
        case "Box":
            return tuple(int(n) for n in leaf["shape"])
        case "Discrete":
            return ()
        case "MultiDiscrete":
            return np.shape(leaf["nvec"])
        case "MultiBinary":
            return tuple(leaf["n"]) if isinstance(leaf["n"], list) else (int(leaf["n"]),)
        case "Text":
            return None
        case kind:
            raise ValueError(kind)


def starts_of(spaces: Json) -> dict[str, np.ndarray]:
    """Return what kinds are counted from where that is not 0, by column."""
    observation, action = (to_spec(spaces[part]) if part in spaces else None for part in ("observations", "actions"))
    found = space_columns(observation) if observation is not None else {}
    return starts(found | ({} if action is None or isinstance(action, Dict | Tuple) else {"action": action}))


def to_spec(space: Json) -> Any:
    """A space of d3ray. Bounds of which an entry is infinite are left out.

    None for text, and for a Dict or Tuple of nothing but text; in others text is left out, and a Tuple with text becomes a Dict of
    numbered parts, so that the others keep their places.
    """
    match space["type"]:
        case "Dict" | "Tuple":
            return _to_parts(space)
        case "Box":
            low, high = (np.asarray(space[side], np.float64) for side in ("low", "high"))
            known = bool(np.isfinite(low).all() and np.isfinite(high).all())
            dtype = _stored(np.dtype(space["dtype"]))
            low, high = (_brief(bound) if known else None for bound in (low, high))
            return Box(shape=shape_of(space) or (1,), dtype=dtype, low=low, high=high)
        case "Discrete":
            return Discrete(n=int(space["n"]), start=int(space.get("start", 0)))
        case "MultiDiscrete":
            nvec = np.asarray(space["nvec"])
            start = np.broadcast_to(space.get("start", 0), nvec.shape)
            return MultiDiscrete(nvec=tuple(nvec.reshape(-1).tolist()), start=tuple(start.reshape(-1).tolist()))
        case "MultiBinary":
            return MultiBinary(n=int(np.prod(shape_of(space) or (1,))))
        case _:
            shape_of(space)  # refuses what is no text either
            return None


def _to_parts(space: Json) -> Dict | Tuple | None:
    several = space["type"] == "Dict"
    inner = dict(space["subspaces"]) if several else {str(k): part for k, part in enumerate(space["subspaces"])}
    parts = {key: part for key, sub in inner.items() if (part := to_spec(sub)) is not None}
    if not parts:
        return None
    return Dict(spaces=parts) if several or len(parts) < len(inner) else Tuple(spaces=tuple(parts.values()))


def from_spec(space: Any) -> Json:
    """Write a space as JSON; bounds that are not known are infinite, or those of the type of integers."""
    match space:
        case Dict():
            return {"type": "Dict", "subspaces": {key: from_spec(part) for key, part in space.spaces.items()}}
        case Tuple():
            return {"type": "Tuple", "subspaces": [from_spec(part) for part in space.spaces]}
        case Discrete():
            return {"type": "Discrete", "dtype": "int64", "start": space.start, "n": space.n}
        case MultiDiscrete():
            start = list(space.start or (0,) * len(space.nvec))
            return {"type": "MultiDiscrete", "dtype": "int64", "nvec": list(space.nvec), "start": start}
        case MultiBinary():
            return {"type": "MultiBinary", "n": space.n}
        case _:
            dtype, bounds = np.dtype(space.dtype), space.bounds()
            if bounds is None:
                least, most = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (-np.inf, np.inf)
                bounds = np.full(space.shape, least), np.full(space.shape, most)
            low, high = (bound.astype(dtype).tolist() for bound in bounds)
            return {"type": "Box", "dtype": dtype.name, "shape": list(space.shape), "low": low, "high": high}


def _stored(dtype: np.dtype[Any]) -> str:
    return "float32" if dtype.kind == "f" else "uint8" if dtype.kind == "b" else dtype.name


def _brief(bound: Any) -> float | tuple[float, ...]:
    """Keep one number where all entries share it: an image has 84 · 84 times 255."""
    entries = bound.reshape(-1)
    return float(entries[0]) if entries.size and (entries == entries[0]).all() else tuple(entries.tolist())
