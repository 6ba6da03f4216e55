"""Parquet files with a row a step under d3ray's own names, as `d3ray convert … format=parquet` and Ray Data write them."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import DataError
from ..imported import Array, Imported, Plan, count_notes, typed_actions, visible_files
from ..stretches import row_stretches, where
from .parquet_table import Parquet, is_parquet, names_of, open_parquet, raw_column, read_column, unpacked_bytes
from .table_names import NAMES, check_renames, entry_names, grouped, is_entry, is_told, not_read, usual_names
from .table_rows import Ends, Ids, check_ends, episode_ids, flags_of, go_over_files, order_notes, order_of, table_steps


def is_flat_parquet(path: Path) -> bool:
    """Whether the file is Parquet with columns of d3ray's names, or a folder of such files over which episodes go."""
    if path.is_dir():
        return flat_parquet_parts(path) == [path]
    if not is_parquet(path):
        return False
    return is_told(_usual(path))


def is_parquet_table(path: Path) -> bool:
    """Whether the file is Parquet with some of d3ray's columns, though others may lack or be called otherwise."""
    return is_parquet(path) and any(is_entry(name, word) for name in _usual(path) for word in ("observation", "action"))


def _usual(path: Path) -> list[str]:
    with open_parquet(path) as file:
        return [name.partition(":")[0] for name in usual_names(file.schema_arrow.names, {}, whole=True)]


def flat_parquet_parts(folder: Path) -> list[Path]:
    """The files of a folder of such files, or the folder, where rows of an episode lie in several of them, as their steps say."""
    files = visible_files(folder)
    if not files or not all(map(is_flat_parquet, files)):
        return []

    return [folder] if len(files) > 1 and go_over_files(files, _episodes, _steps) else files


def _episodes(path: Path) -> Ids | None:
    """Of a file that has ids and steps."""
    with _open(path) as table:
        layout = table.layout({})
        return table.ids(layout) if {"episode", "step"} <= layout.columns.keys() else None


def _steps(path: Path) -> Array:
    with _open(path) as table:
        return table.read("step", table.layout({}))


def read_flat_parquet(
    path: Path | str,
    *,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
    ends: Ends = "truncated",
) -> Imported:
    """Steps of a flat Parquet file, or of a folder of files over which episodes go, episode after episode; none is dropped.

    Columns: `observation` (or `observation/KEY` of dicts and tuples), `action`, `reward` and, where present, `episode` (numbers or
    text), `step`, `terminated`, `truncated`, `closing`, `next_observation`, `next_recorded`, `log_prob` (or `action_prob`),
    `action_mask` and `info/NAME`, under these names or the synonyms that CSV may have; others are left out, and a note names them.
    Vectors are lists of one length, or a column a number, as CSV has them. What has more axes, and all of uint8, may be stored flat
    or as bytes, its shape being in the field's metadata (`shape`: "84,84"); what the entries of a list are called may be there too
    (`names`, JSON).

    Where an episode ends, and in what order rows are read, is as of every table: see `order_of`. A row with `closing` is no step:
    it holds the final observation of the episode before it. Without, that is the `next_observation` of the last step where
    `next_recorded` does not say otherwise; an episode with neither has no final observation.

    Args:
        path: the file, or the folder.
        timeout_at: steps. The step of that number in an episode truncates it, whatever the file says.
        discrete_action: None: integers are discrete actions, those of several entries multi-discrete or (of bytes) binary.
        rename: what this file calls a column, by d3ray's word.
        ends: what the end of an episode is where there is no `terminated`.

    Raises:
        DataError: not Parquet, damaged, a column missing, of another type or with empty values (column and row are named), an
            episode that comes back after another and no `step` to tell the order, a closing row that follows no step, NaN or
            infinity, no steps.
    """
    return _read(Path(path), None, None, timeout_at, discrete_action, rename, ends)


def plan_flat_parquet(
    path: Path | str, *, rename: Mapping[str, str] | None = None, n_bytes: int | None = None, **options: Any
) -> Plan:
    """How the file is read in stretches of whole episodes, by the columns that tell their ends. Raises as `read_flat_parquet`.

    A folder, and a file whose rows have to be put in order, is read whole.

    Args:
        path: the file. At a time are read the row groups that a stretch lies in.
        rename: as `read_flat_parquet`.
        n_bytes: of a stretch, where no episode has more; None: all of the file.
        options: as `read_flat_parquet`.
    """
    source, path = str(path), Path(path)
    with _open(path) as table:
        layout = table.layout(rename or {})
        notes = [*layout.notes, *check_ends(options.get("ends", "truncated"), layout.columns)]
        flag = {word: table.read(word, layout) for word in ("terminated", "truncated", "closing") if word in layout.columns}
        step = table.read("step", layout) if "step" in layout.columns else None
        ids = table.ids(layout) if "episode" in layout.columns else None
        order = order_of(source, layout.called, ids, step, flags_of(source, layout.called, flag))
        row_bytes = table.n_bytes // max(len(order.ends), 1) + 1
    if order.rows is not None or path.is_dir():
        return Plan((partial(read_flat_parquet, path, rename=rename, **options),), (row_bytes * len(order.ends),))
    found = row_stretches(order.ends, n_bytes and n_bytes // row_bytes)
    return Plan(
        tuple(partial(_read, path, rows, order.unit, rename=rename, **options) for rows in found),
        tuple(row_bytes * (rows.stop - rows.start) for rows in found),
        {"format": "parquet", "file": path.name},
        (*notes, *order_notes(order, layout.called)),
        partial(count_notes, limits_known=_limits_known(layout.columns, options.get("timeout_at"))),
    )


def _limits_known(words: Collection[str], timeout_at: int | None) -> bool:
    return "truncated" in words or timeout_at is not None


def _read(
    path: Path,
    rows: slice | None,
    unit: float | None,
    timeout_at: int | None = None,
    discrete_action: bool | None = None,
    rename: Mapping[str, str] | None = None,
    ends: Ends = "truncated",
) -> Imported:
    """All of the file, or some rows, which are whole episodes; then without words on the columns, and on how episodes end."""
    source = str(path) if rows is None else where(path, rows.start)
    with _open(path) as table:
        layout = table.layout(rename or {})
        notes = [*layout.notes, *check_ends(ends, layout.columns)]
        columns = {word: table.read(word, layout, rows) for word in layout.columns if word not in ("episode", "step")}
        step = table.read("step", layout, rows) if "step" in layout.columns else None
        ids = table.ids(layout, rows) if "episode" in layout.columns else None
    if not len(columns["reward"]):
        raise DataError(f"{source} has no steps.")
    if discrete_action is not None:
        columns["action"] = typed_actions(source, columns["action"], discrete_action)
    order = order_of(source, layout.called, ids, step, flags_of(source, layout.called, columns), unit)
    steps, said = table_steps(source, layout.called, columns, order, ends, timeout_at)
    if rows is None:
        said = [*notes, *order_notes(order, layout.called), *said]
        said += count_notes(steps, limits_known=_limits_known(layout.columns, timeout_at))
    return Imported(steps, names=layout.names, notes=said, provenance={"format": "parquet", "file": path.name})


@dataclass(frozen=True)
class _Layout:
    """What the schema says.

    Attributes:
        columns: what the file calls the columns that each of d3ray's words is put together of.
        called: what errors call the words of `NAMES`.
        entries: the words that are put together of a column an entry.
        names: what the file calls the entries of arrays, where it does.
        notes: sentences on columns that are not read.
    """

    columns: dict[str, list[str]]
    called: dict[str, str]
    entries: frozenset[str]
    names: dict[str, tuple[str, ...]]
    notes: list[str]


@dataclass(frozen=True)
class _Table:
    """Files that are read as one table."""

    source: str
    files: list[Parquet]

    @property
    def n_bytes(self) -> int:
        """Bytes of all row groups, unpacked."""
        return sum(map(unpacked_bytes, self.files))

    def layout(self, rename: Mapping[str, str]) -> _Layout:
        """The columns, which all files have. Raises DataError, ConfigError."""
        names: list[str] = self.files[0].schema_arrow.names
        for file in self.files:
            if odd := sorted(set(names) ^ set(file.schema_arrow.names)):
                raise DataError(f"{self.source}: its files have different columns; {odd[0]!r} is in some of them.")
        usual = usual_names(names, check_renames(rename, names, self.source, "parquet"), whole=True)
        groups, theirs = grouped(usual, self.source, names, whole=True), dict(zip(usual, names, strict=True))
        single = {name: [name] for name in usual if name in NAMES or name.startswith("info/")}
        columns = {word: [theirs[name] for name in parts] for word, parts in (groups | single).items()}
        entries = frozenset(word for word, parts in groups.items() if parts != [word])
        fields = {word: self.files[0].schema_arrow.field(columns[word][0]) for word in groups}
        called = entry_names({w: groups[w] for w, field in fields.items() if pa.types.is_primitive(field.type)}, theirs)
        called |= {word: told for word, field in fields.items() if (told := names_of(field))}
        return _Layout(columns, {word: theirs.get(word, word) for word in NAMES}, entries, called, not_read(usual))

    def read(self, word: str, layout: _Layout, rows: slice | None = None) -> Array:
        """[N, ...] by d3ray's word."""
        parts = [self._column(name, rows) for name in layout.columns[word]]
        if word not in layout.entries:
            return parts[0]
        for name, part in zip(layout.columns[word], parts, strict=True):
            if part.ndim > 1:
                raise DataError(f"{self.source}: column {name!r} has entries of shape {list(part.shape[1:])}; a number is needed.")
        return np.stack(parts, 1)

    def _column(self, name: str, rows: slice | None) -> Array:
        parts = [read_column(file, name, self.source, rows) for file in self.files]
        if len({part.shape[1:] for part in parts}) > 1:
            raise DataError(f"{self.source}: column {name!r} has entries of several shapes.")
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def ids(self, layout: _Layout, rows: slice | None = None) -> Ids:
        """Which episode each row is of."""
        (name,) = layout.columns["episode"]
        parts = [raw_column(file, name, self.source, rows) for file in self.files]
        if len({part.type for part in parts}) > 1:
            raise DataError(f"{self.source}: column {name!r} holds {parts[0].type} in some files and others elsewhere.")
        return episode_ids(self.source, name, pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type))


@contextmanager
def _open(path: Path) -> Generator[_Table]:
    files = visible_files(path) if path.is_dir() else [path]
    with ExitStack() as stack:
        opened = [stack.enter_context(open_parquet(file)) for file in files]
        yield _Table(str(path), [file for file in opened if file.metadata.num_rows] or opened[:1])  # Ray writes empty ones too
