"""Outcomes of decisions from a CSV file, as a join to a log: what came of them is often known elsewhere, and later."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...decision_log.schema import flat_column, outcome_schema
from ...errors import DataError
from ...spec import Spec, space_columns
from ..arrays import existing_file
from ..tabular.csv_cells import header
from ..tabular.table_names import usual_names
from ..untrusted.archives import open_gzip

_TEXTS = ("policy", "episode", "decision")
_NUMBERS = ("step", "reward", "cost")
_FLAGS = ("terminated", "truncated")
_YES, _NO = frozenset({"1", "true", "yes"}), frozenset({"0", "false", "no", ""})


def read_outcomes(path: Path, spec: Spec) -> tuple[Any, list[str]]:
    """Read outcomes as a table of `outcome_schema`, and notes.

    Columns: `episode` and `step`, or `decision`, and `reward`; where present `policy`, `cost`, `terminated`, `truncated` and the
    observation after the last step, as `observation:0` … (`observation/KEY:0` …), with empty cells where there is none. Synonyms
    are those of other tables, as `done`. Raises DataError, which names the line.
    """
    existing_file(path)
    written, separator = header(path)
    names = usual_names(written, {}, whole=False)
    entries = _entries(spec, names, str(path))
    known = {*_TEXTS, *_NUMBERS, *_FLAGS, *(name for parts in entries.values() for name in parts)}
    missing = [] if "reward" in names else ["reward"]
    missing += [] if "decision" in names or {"episode", "step"} <= set(names) else ["episode and step (or decision)"]
    if missing:
        raise DataError(f"{path} has no column {missing[0]}, only {', '.join(written) or 'no line of text'}.")
    columns: dict[str, list[Any]] = {name: [] for name in (*_TEXTS, *_NUMBERS, *_FLAGS, *entries)}
    seen = dict[Any, tuple[int, str]]()
    with open_gzip(path) as stream:
        reader = csv.reader(TextIOWrapper(stream, "utf-8-sig", newline=""), delimiter=separator)
        next(reader, None)
        for cells in filter(None, reader):
            where = f"{path}, line {reader.line_num}"
            if len(cells) != len(names):
                raise DataError(f"{where}: there are {len(cells)} cells, and the header has {len(names)}.")
            row = _row(dict(zip(names, map(str.strip, cells), strict=True)), entries, where)
            key, said = tuple(row[name] for name in ("policy", "episode", "step", "decision")), str(list(row.values()))
            first = seen.setdefault(key, (reader.line_num, said))
            if first[1] != said:
                raise DataError(f"{where}: there is another outcome of the same decision in line {first[0]}.")
            if first[0] == reader.line_num:
                for name, value in row.items():
                    columns[name].append(value)
    left = [name for name, usual in zip(written, names, strict=True) if usual not in known]
    notes = [f"Columns of {path.name} that outcomes do not have were left out: {', '.join(left)}."] if left else []
    return _table(columns, spec), notes


def _entries(spec: Spec, names: Sequence[str], source: str) -> dict[str, list[str]]:
    """List the columns of each part of an observation, in C order; none where the file has no observations. Raises DataError."""
    given = {name for name in names if name.startswith("observation")}
    if not given:
        return {}
    wanted = {name: [f"{name}:{k}" for k in range(leaf.size)] for name, leaf in space_columns(spec.observation).items()}
    if lacking := [part for parts in wanted.values() for part in parts if part not in given]:
        raise DataError(f"{source} has columns of observations and none for {lacking[0]}.")
    return wanted


def _row(cells: Mapping[str, str], entries: Mapping[str, list[str]], where: str) -> dict[str, Any]:
    row: dict[str, Any] = {name: cells.get(name) or None for name in _TEXTS}
    row |= {name: _number(cells.get(name, ""), name, where) for name in _NUMBERS}
    row |= {name: _flag(cells.get(name, ""), name, where) for name in _FLAGS}
    if row["reward"] is None:
        raise DataError(f"{where}: reward is empty.")
    if row["decision"] is None and (row["episode"] is None or row["step"] is None):
        raise DataError(f"{where}: it names no decision; episode and step are needed, or decision.")
    if row["step"] is not None:
        if row["step"] != int(row["step"]) or row["step"] < 0:
            raise DataError(f"{where}: step is {cells['step']}; a whole number from 0 on is needed.")
        row["step"] = int(row["step"])
    told = [cells[name] for parts in entries.values() for name in parts]
    for name, parts in entries.items():
        row[name] = None
        if any(told):
            numbers = [_number(cells[part], part, where) for part in parts]
            if None in numbers:
                raise DataError(f"{where}: {parts[numbers.index(None)]} is empty, and other entries are not.")
            row[name] = tuple(numbers)
    if any(told) and not (row["terminated"] or row["truncated"]):
        raise DataError(f"{where}: it has an observation and ends nothing: set terminated or truncated.")
    return row


def _number(cell: str, name: str, where: str) -> float | None:
    if not cell:
        return None
    try:
        value = float(cell)
    except ValueError:
        raise DataError(f"{where}: {name} is {cell[:40]!r}, which is no number.") from None
    if not math.isfinite(value):
        raise DataError(f"{where}: {name} is {cell}; a finite number is needed.")
    return value


def _flag(cell: str, name: str, where: str) -> bool:
    if (word := cell.lower().removesuffix(".0")) not in _YES | _NO:
        raise DataError(f"{where}: {name} is {cell[:40]!r}; 0 or 1 is needed.")
    return word in _YES


def _table(columns: Mapping[str, list[Any]], spec: Spec) -> Any:
    n, schema, leaves = len(columns["reward"]), outcome_schema(spec), space_columns(spec.observation)
    given: dict[str, Any] = {**columns, "time": [datetime.now(UTC)] * n, "status": ["recorded"] * n}
    arrays = list[Any]()
    for field in schema:
        values = given.get(field.name, [None] * n)
        if field.name in leaves:
            leaf = leaves[field.name]
            values = [None if value is None else np.asarray(value).reshape(leaf.shape).astype(leaf.dtype) for value in values]
            arrays.append(flat_column(values, field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.table(arrays, schema=schema)
