"""Reading a log while it grows: whole rows of every file that is there, in an order that further rows do not change."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import DataError
from .layout import Kind, LogFile, LogFolder
from .schema import decision_schema, outcome_schema
from .stream import messages


@dataclass(frozen=True)
class FileRows:
    """Rows of a file, as far as they are whole."""

    file: LogFile
    table: Any
    content: Any  # bytes up to the end of the last of them
    torn: int  # bytes at the end of a closed file, or of a dead writer's, that are no row
    closed: bool


def read_files(log: LogFolder, kind: Kind, columns: Sequence[str] | None = None) -> Iterator[FileRows]:
    """Read the files of a log one by one, a writer's in the order in which they were written; of `columns`, None: all.

    Raises DataError where a file is of another log.
    """
    schema = _schema(log, kind)
    for file in log.files(kind):
        if (found := log.content(kind, file)) is not None:
            content, closed = found
            rows = messages(content)
            if rows.schema is not None and not rows.schema.equals(schema):
                raise DataError(f"{log.place.address(f'{kind}/{file.stem}')} is of another log: its columns are others.")
            table = pa.Table.from_batches(rows.batches, schema)
            content = content.slice(0, rows.size)
            yield FileRows(file, table if columns is None else table.select(list(columns)), content, rows.torn, closed)


@dataclass(frozen=True)
class LogTable:
    """Rows of a log, as they were written: retries, shadows and conflicts among them.

    Attributes:
        table: The rows, those of a file together.
        ends: How many rows there are up to the end of each file.
        sizes: Bytes of each file, and their SHA-256, as far as they were read.
        torn: Bytes of rows that were not written whole, by the file.
        gone: Files that are missing between others of their writer.
    """

    table: Any
    ends: dict[LogFile, int]
    sizes: dict[str, tuple[int, str]]
    torn: dict[str, int]
    gone: list[str]


def read_rows(log: LogFolder, kind: Kind, columns: Sequence[str] | None = None) -> LogTable:
    """Read all rows of a log, as `read_files` does."""
    found = LogTable(None, {}, {}, {}, [])
    tables, n, last = list[Any](), 0, None
    for rows in read_files(log, kind, columns):
        name = f"{kind}/{rows.file.stem}"
        found.sizes[name] = (rows.content.size, hashlib.sha256(memoryview(rows.content)).hexdigest())
        if rows.torn and rows.closed:
            found.torn[name] = rows.torn
        first = 0 if last is None or last.writer != rows.file.writer else last.number + 1
        found.gone.extend(f"{kind}/{LogFile(rows.file.writer, k).stem}" for k in range(first, rows.file.number))
        last = rows.file
        n += rows.table.num_rows
        found.ends[rows.file] = n
        tables.append(rows.table.combine_chunks())
    if not tables:
        empty = _schema(log, kind).empty_table()
        tables = [empty if columns is None else empty.select(list(columns))]
    return replace(found, table=pa.concat_tables(tables))


def take_rows(log: LogFolder, kind: Kind, ends: Mapping[LogFile, int], rows: np.ndarray, columns: Sequence[str]) -> Any:
    """Read some rows of a log again, by their numbers where files end at `ends`, as an Arrow table in the order asked for."""
    starts = dict(zip(ends, [0, *ends.values()][:-1], strict=True))
    found, numbers = list[Any](), list[np.ndarray]()
    for part in read_files(log, kind, columns):
        if part.file in ends:
            here = np.unique(rows[(rows >= starts[part.file]) & (rows < ends[part.file])])
            numbers.append(here)
            found.append(part.table.combine_chunks().take(here - starts[part.file]))
    there = np.concatenate([np.zeros(0, np.int64), *numbers])
    if not np.isin(rows, there).all():
        raise DataError(f"{log.place} has lost files while it was read.")
    order = np.argsort(there, kind="stable")
    empty = _schema(log, kind).empty_table().select(list(columns))
    return pa.concat_tables([empty, *found]).take(order[np.searchsorted(there[order], rows)])


def _schema(log: LogFolder, kind: Kind) -> Any:
    spec = log.read_about().spec
    return decision_schema(spec) if kind == "decisions" else outcome_schema(spec)


def read_log(where: str | Path, kind: Kind = "decisions", columns: Sequence[str] | None = None) -> Any:
    """Read the decisions or outcomes of a log as an Arrow table, as they were written.

    Args:
        where: The log's folder, or its URI.
        kind: Which of them.
        columns: Some of them; None: all. See `decision_schema` and `outcome_schema`.

    Raises:
        DataError: there is no log, or a file of it is of another one.
        StorageError: it cannot be read.
    """
    return read_rows(LogFolder(where), kind, columns).table
