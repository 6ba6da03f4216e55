"""Arrays out of what JSON, msgpack and pickles hold: lists, dicts and tuples, checked to be numbers of one shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ...storage.json_text import parse_json
from ..arrays import Array, check_rename, native
from .unpacking import OBJECTS, needs, unpacking

Leaves = dict[str, Array]  # an observation's arrays by key, nested keys joined by "/"; "" is the only key of a plain one


def json_file(path: Path) -> Any:
    """Read a file of JSON. Raises OSError where it cannot be read, ValueError where it is none."""
    with unpacking(path):
        needs(str(path), OBJECTS * path.stat().st_size)
        return parse_json(path.read_bytes())


def names_in(
    there: Iterable[str],
    usual: Mapping[str, tuple[str, ...]],
    required: Sequence[str],
    source: str,
    rename: Mapping[str, str],
    format: str,
) -> dict[str, str]:
    """Return what a file calls each of d3ray's words: as `rename` says, else the first of the `usual` ones that is `there`."""
    names, rename = list(there), check_rename(rename, usual, format)
    found: dict[str, str] = {}
    for word, choices in usual.items():
        asked = (rename[word],) if word in rename else choices
        if (name := next((n for n in asked if n in names), None)) is not None:
            found[word] = name
        elif word in required or word in rename:
            listed = ", ".join(map(repr, names[:12])) or "nothing"
            raise DataError(f"{source} has no {' or '.join(map(repr, asked))}, only {listed}.")
    return found


def numbers(source: str, name: str, value: Any, *, text: bool = False) -> Array:
    """Convert an array or nested lists to an array of numbers (or of text, where that may be)."""
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):
        raise DataError(f"{source}: {name!r} has entries of different lengths.") from None
    if array.dtype.kind not in ("biufU" if text else "biuf"):
        raise DataError(f"{source}: {name!r} holds {array.dtype}, not numbers.")
    if array.ndim == 0:
        raise DataError(f"{source}: {name!r} is a single value, not one row a step.")
    return array if array.dtype.kind == "U" else native(array)


def leaves(source: str, name: str, value: Any, key: str = "") -> Leaves:
    """Flatten an observation column, which may be a dict or tuple of columns, or a dict in each row."""
    value = _columns_of_rows(source, f"{name}/{key}" if key else name, value)
    if isinstance(value, dict | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        inside = [leaves(source, name, v, f"{key}/{k}" if key else str(k)) for k, v in items]
        if not any(inside):
            raise DataError(f"{source}: {name!r} is an empty {type(value).__name__}.")
        return {k: column for part in inside for k, column in part.items()}
    return {key: numbers(source, f"{name}/{key}" if key else name, value)}


def _columns_of_rows(source: str, name: str, rows: Any) -> Any:
    """Turn rows of dicts into a dict of columns; other values stay as they are."""
    if not isinstance(rows, list | np.ndarray) or not len(rows) or not isinstance(rows[0], dict):
        return rows
    for k, row in enumerate(rows):
        if not isinstance(row, dict) or row.keys() != rows[0].keys():
            raise DataError(
                f"{source}: {name!r} has other keys in row {k} than in row 0, which has {', '.join(map(repr, rows[0]))}."
            )
    return {key: [row[key] for row in rows] for key in rows[0]}


def info_columns(infos: Any) -> Leaves:
    """Collect those entries of the steps' info dicts that every step has as a single number, or such columns."""
    if isinstance(infos, dict):
        return {str(n): c for n, c in infos.items() if isinstance(c, np.ndarray) and c.ndim == 1 and c.dtype.kind in "biuf"}
    if not isinstance(infos, list | tuple) or not infos or not all(isinstance(info, dict) for info in infos):
        return {}
    names = [
        name
        for name in infos[0]
        if isinstance(name, str) and all(isinstance(info.get(name), int | float | np.number | np.bool_) for info in infos)
    ]
    columns = {name: np.array([info[name] for info in infos]) for name in names}
    return {name: native(c) for name, c in columns.items() if c.dtype.kind in "biuf" and np.isfinite(c).all()}


def plain(tree: Leaves) -> Array | Leaves:
    return tree[""] if list(tree) == [""] else tree
