"""Parquet files with a row a step under d3ray's own names, as `d3ray convert … format=parquet` and Ray Data write them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...errors import DataError
from ..arrays import Array, visible_files
from ..format import Imported, Plan, row_stretches, where
from .parquet_table import Parquet, is_parquet, names_of, open_parquet, raw_column, read_column, unpacked_bytes
from .table_names import NAMES, check_renames, entry_names, grouped, is_entry, is_told, not_read, usual_names
from .table_rows import Ids, Order, TableFormat, episode_ids, flags_of, go_over_files, order_notes, order_of


class FlatParquet(TableFormat):
    """Steps of a flat Parquet file, or of a folder of files over which episodes go, episode after episode.

    Columns: `observation` (or `observation/KEY` of dicts and tuples), `action`, `reward` and, where present, `episode` (numbers or
    text), `step`, `terminated`, `truncated`, `closing`, `next_observation`, `next_recorded`, `cost`, `log_prob` (or `action_prob`),
    `action_mask` and `info/NAME`, under these names or the synonyms that CSV may have; others are left out, and a note names them.
    Vectors are lists of one length, or a column a number, as CSV has them. What has more axes, and all of uint8, may be stored flat
    or as bytes, its shape being in the field's metadata (`shape`: "84,84"); what the entries of a list are called may be there too
    (`names`, JSON). Integers of several entries are multi-discrete actions or (of bytes) binary ones.
    """

    name = "parquet"
    description = "Parquet with a row a step under d3ray's names"

    @classmethod
    def detect(cls, path: Path) -> bool:
        if path.is_dir():
            return cls.parts(path) == [path]
        return is_parquet(path) and is_told(_usual(path))

    @classmethod
    def nearly(cls, path: Path, *, renamed: bool) -> bool:
        some = ("observation", "action")
        return is_parquet(path) and (renamed or any(is_entry(name, word) for name in _usual(path) for word in some))

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        files = visible_files(folder)
        if not files or not all(map(cls.detect, files)):
            return []
        return [folder] if len(files) > 1 and go_over_files(files, _episodes, _steps) else files

    def read(self, path: Path) -> Imported:
        return self._read(path)

    def plan(self, path: Path, n_bytes: int | None) -> Plan:
        """Stretches of whole episodes, of which the row groups that they lie in are read at a time.

        A folder, and a file whose rows have to be put in order, is read whole.
        """
        if n_bytes is None or path.is_dir():
            return super().plan(path, n_bytes)
        with _open(path) as table:
            layout = table.layout(self.rename)
            flag = {word: table.read(word, layout) for word in ("terminated", "truncated", "closing") if word in layout.columns}
            order = table.order(layout, flag, None, None)
            row_bytes = table.n_bytes // max(len(order.ends), 1) + 1
        if order.rows is not None:
            return super().plan(path, n_bytes)
        found = row_stretches(order.ends, n_bytes // row_bytes)
        return Plan(
            tuple(partial(self._read, path, rows, order.unit) for rows in found),
            tuple(row_bytes * (rows.stop - rows.start) for rows in found),
            notes=(*layout.notes, *self.on_task(layout.columns), *order_notes(order, layout.called)),
            said=partial(self.on_ends, limits_known="truncated" in layout.columns),
        )

    def _read(self, path: Path, rows: slice | None = None, unit: float | None = None) -> Imported:
        """Read all of the file, or rows that are whole episodes; of these nothing is said on columns and on how episodes end."""
        source = str(path) if rows is None else where(path, rows.start)
        with _open(path) as table:
            layout = table.layout(self.rename)
            columns = {word: table.read(word, layout, rows) for word in layout.columns if word not in ("episode", "step")}
            if not len(columns["reward"]):
                raise DataError(f"{source} has no steps.")
            if self.discrete_action is not None:
                columns["action"] = self.actions(source, columns["action"])
            order = table.order(layout, columns, rows, unit, source)
        steps, said = self.steps_of(source, layout.called, columns, order)
        if rows is None:
            said = [*layout.notes, *self.on_task(layout.columns), *order_notes(order, layout.called), *said]
            said += self.on_ends(steps, limits_known="truncated" in layout.columns)
        return Imported(steps, names=layout.names, notes=said)


def _usual(path: Path) -> list[str]:
    with open_parquet(path) as file:
        return [name.partition(":")[0] for name in usual_names(file.schema_arrow.names, {}, whole=True)]


def _episodes(path: Path) -> Ids | None:
    with _open(path) as table:
        layout = table.layout({})
        return table.ids(layout) if {"episode", "step"} <= layout.columns.keys() else None


def _steps(path: Path) -> Array:
    with _open(path) as table:
        return table.read("step", table.layout({}))


@dataclass(frozen=True)
class _Layout:
    """Layout given by the schema."""

    columns: dict[str, list[str]]  # what the file calls the columns that each of d3ray's words is put together of
    called: dict[str, str]  # what errors call the words of `NAMES`
    entries: frozenset[str]  # the words that are put together of a column an entry
    names: dict[str, tuple[str, ...]]  # what the file calls the entries of arrays, where it does
    notes: list[str]  # sentences on columns that are not read


@dataclass(frozen=True)
class _Table:
    """Files that are read as one table."""

    source: str
    files: list[Parquet]

    @property
    def n_bytes(self) -> int:
        return sum(map(unpacked_bytes, self.files))

    def layout(self, rename: Mapping[str, str]) -> _Layout:
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
        (name,) = layout.columns["episode"]
        parts = [raw_column(file, name, self.source, rows) for file in self.files]
        if len({part.type for part in parts}) > 1:
            raise DataError(f"{self.source}: column {name!r} holds {parts[0].type} in some files and others elsewhere.")
        return episode_ids(self.source, name, pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type))

    def order(
        self, layout: _Layout, columns: Mapping[str, Array], rows: slice | None, unit: float | None, source: str = ""
    ) -> Order:
        source = source or self.source
        step = self.read("step", layout, rows) if "step" in layout.columns else None
        ids = self.ids(layout, rows) if "episode" in layout.columns else None
        return order_of(source, layout.called, ids, step, flags_of(source, layout.called, columns), unit)


@contextmanager
def _open(path: Path) -> Generator[_Table]:
    files = visible_files(path) if path.is_dir() else [path]
    with ExitStack() as stack:
        opened = [stack.enter_context(open_parquet(file)) for file in files]
        yield _Table(str(path), [file for file in opened if file.metadata.num_rows] or opened[:1])  # Ray writes empty ones too
