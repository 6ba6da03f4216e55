"""One Parquet file with a row a step under d3ray's own names, as `d3ray convert … format=parquet` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ...masks import ACTION_MASK, masked
from ..imported import Array, Imported, Plan, check_rename, count_notes, flags, one_column, typed_actions
from ..runs import Runs
from ..stretches import row_stretches, where
from .parquet_table import is_parquet, open_parquet, read_column

NAMES = ("observation", "action", "reward", "terminated", "truncated", "closing", "episode", "log_prob", ACTION_MASK)
REQUIRED = ("action", "reward", "terminated")
LIMITS = {"truncated", "episode"}  # columns by which a file tells time limits from ends of the task
ENDS = ("terminated", "truncated", "closing")


def is_flat_parquet(path: Path) -> bool:
    """Whether the file is Parquet with columns of d3ray's names."""
    if not is_parquet(path):
        return False
    with open_parquet(path) as file:
        names = file.schema_arrow.names
    return set(REQUIRED) <= set(names) and bool(_observations(names, "observation"))


def read_flat_parquet(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
) -> Imported:
    """Steps of a flat Parquet file, in its order; none is dropped.

    Columns: `observation` (or `observation/KEY` of dicts and tuples), `action`, `reward`, `terminated` and, where present,
    `truncated`, `episode`, `closing`, `log_prob`, `action_mask`, `info/NAME`; others are left out, and a note names them. Vectors
    are lists of one length. What has more axes, and all of uint8, may be stored flat or as bytes, its shape being in the field's
    metadata (`shape`: "84,84").

    An episode ends where `terminated` or `truncated` says so, where `episode` changes, and at the last row. A row with `closing`
    is no step: it holds the final observation of the episode before it. An episode without such a row has no final observation.

    Args:
        path: the file.
        timeout_at: steps. The step of that number in an episode truncates it, whatever the file says.
        discrete_action: None: integers are discrete actions, those of several entries multi-discrete or (of bytes) binary.
        rename: what this file calls a column, by d3ray's word.

    Raises:
        DataError: not Parquet, damaged, a column missing, of another type or with empty values (column and row are named), a
            closing row that follows no step, NaN or infinity, no steps.
    """
    return _read(path, None, timeout_at, discrete_action, rename)


def plan_flat_parquet(
    path: Path | str, *, rename: Mapping[str, str] | None = None, n_bytes: int | None = None, **options: Any
) -> Plan:
    """How the file is read in stretches of whole episodes, by the columns that tell their ends. Raises as `read_flat_parquet`.

    Args:
        path: the file. At a time are read the row groups that a stretch lies in.
        rename: as `read_flat_parquet`.
        n_bytes: of a stretch, where no episode has more; None: all of the file.
        options: as `read_flat_parquet`.
    """
    source = str(path)
    with open_parquet(path) as file:
        called, _, _ = _columns(file, source, rename)
        there = {word: read_column(file, called[word], source) for word in (*ENDS, "episode") if word in called}
        n, groups = file.metadata.num_rows, range(file.metadata.num_row_groups)
        row_bytes = sum(file.metadata.row_group(k).total_byte_size for k in groups) // max(n, 1) + 1
    flag = {word: flags(source, called.get(word, word), there.get(word, np.zeros(n, bool))) for word in ENDS}
    changed = there["episode"][1:] != there["episode"][:-1] if "episode" in there else np.zeros(max(n - 1, 0), bool)
    closing, flagged = flag["closing"], flag["terminated"] | flag["truncated"]
    end = np.r_[changed | closing[:-1] | (flagged[:-1] & ~closing[1:]), True]
    found = row_stretches(end, n_bytes and n_bytes // row_bytes)
    return Plan(
        tuple(partial(_read, path, rows, rename=rename, **options) for rows in found),
        tuple(row_bytes * (rows.stop - rows.start) for rows in found),
        {"format": "parquet", "file": Path(path).name},
        said=partial(count_notes, limits_known=bool(LIMITS & called.keys())),
    )


def _columns(file: Any, source: str, rename: Mapping[str, str] | None) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The file's columns by d3ray's word, those of the observation by the part that they hold, and notes on those left out."""
    said, names = check_rename(rename, NAMES, "parquet"), file.schema_arrow.names
    called = {word: said.get(word, word) for word in NAMES}
    parts = _observations(names, called["observation"])
    for word in (*REQUIRED, *said, *(() if parts else ("observation",))):
        if called[word] not in names and (word != "observation" or not parts):
            raise DataError(f"{source} has no column {called[word]!r}, only {', '.join(map(repr, names))}.")
    there = {word: name for word, name in called.items() if name in names and name not in parts.values()}
    there |= {name: name for name in names if name.startswith("info/")}
    left = sorted(set(names) - {*called.values(), *parts.values(), *there.values(), "step"})
    return there, parts, [f"Left out, being none of d3ray's columns: {', '.join(left)}."] if left else []


def _read(
    path: Path | str,
    rows: slice | None,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
) -> Imported:
    """All of the file, or some rows, which are whole episodes; then without words on how they end."""
    source = str(path) if rows is None else where(path, rows.start)
    with open_parquet(path) as file:
        called, parts, notes = _columns(file, source, rename)
        observations = {part: read_column(file, name, source, rows) for part, name in parts.items()}
        there = {word: read_column(file, name, source, rows) for word, name in called.items()}
    extra = {name: column for name, column in there.items() if name.startswith("info/")}
    n = len(there["reward"])
    if not n:
        raise DataError(f"{source} has no steps.")
    closing = flags(source, called["closing"], there["closing"]) if "closing" in there else np.zeros(n, bool)
    step = ~closing
    if "log_prob" in there:
        extra["log_prob"] = one_column(source, called["log_prob"], there["log_prob"])
    terminated, truncated = (flags(source, called.get(word, word), there.get(word, ~step)) for word in ("terminated", "truncated"))
    actions = there["action"][step]
    runs = Runs(
        masked(observations.get("", observations), there.get(ACTION_MASK)),
        closing,
        _last(source, closing, there.get("episode"), called),
        actions if discrete_action is None else typed_actions(source, actions, discrete_action),
        one_column(source, called["reward"], there["reward"])[step],
        terminated[step],
        truncated[step],
        {name: column[step] for name, column in extra.items()},
    )
    steps, cut = runs.steps(source, timeout_at)
    notes += [*cut, *(count_notes(steps, limits_known=bool(LIMITS & called.keys())) if rows is None else ())]
    return Imported(steps, notes=notes, provenance={"format": "parquet", "file": Path(path).name})


def _observations(names: list[str], root: str) -> dict[str, str]:
    """Columns of the observation, by the part that they hold ("" for all of it)."""
    return {name.removeprefix(root).removeprefix("/"): name for name in names if f"{name}/".startswith(f"{root}/")}


def _last(source: str, closing: Array, episode: Array | None, called: Mapping[str, str]) -> Array:
    """[N] bool: the last step before a closing row, before another episode, and of all."""
    changed = closing[:-1] if episode is None else closing[:-1] | (episode[1:] != episode[:-1])
    begins = np.r_[True, changed]
    if (alone := np.flatnonzero(closing & begins)).size:
        raise DataError(f"{source}: row {int(alone[0])} is marked {called['closing']!r} and follows no step of its episode.")
    return np.r_[closing[1:] | begins[1:], True][~closing]
