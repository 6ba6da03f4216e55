"""Reading a log while it grows: whole rows of every file that is there, in an order that further rows do not change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    torn: int  # bytes at the end of a closed file, or of a dead writer's, that are no row
    closed: bool


def read_files(log: LogFolder, kind: Kind, columns: Sequence[str] | None = None) -> Iterator[FileRows]:
    """Read the files of a log one by one, a writer's in the order in which they were written; of `columns`, None: all.

    Raises DataError where a file is of another log.
    """
    spec = log.read_about().spec
    schema = decision_schema(spec) if kind == "decisions" else outcome_schema(spec)
    for file in log.files(kind):
        if (found := log.content(kind, file)) is not None:
            content, closed = found
            rows = messages(content)
            if rows.schema is not None and not rows.schema.equals(schema):
                raise DataError(f"{log.place.address(f'{kind}/{file.stem}')} is of another log: its columns are others.")
            table = pa.Table.from_batches(rows.batches, schema)
            yield FileRows(file, table if columns is None else table.select(list(columns)), rows.torn, closed)


@dataclass(frozen=True)
class LogTable:
    """Rows of a log, as they were written: retries, shadows and conflicts among them.

    Attributes:
        table: The rows, those of a file together.
        ends: How many rows there are up to the end of each file.
        torn: Bytes of rows that were not written whole, by the file.
        gone: Files that are missing between others of their writer.
    """

    table: Any
    ends: dict[LogFile, int]
    torn: dict[str, int] = field(default_factory=dict[str, int])
    gone: list[str] = field(default_factory=list[str])


def read_rows(log: LogFolder, kind: Kind, columns: Sequence[str] | None = None) -> LogTable:
    """Read all rows of a log, as `read_files` does."""
    tables, ends, torn, gone, n = list[Any](), dict[LogFile, int](), dict[str, int](), list[str](), 0
    last: LogFile | None = None
    for rows in read_files(log, kind, columns):
        if rows.torn and rows.closed:
            torn[f"{kind}/{rows.file.stem}"] = rows.torn
        if last is not None and last.writer == rows.file.writer:
            gone += [f"{kind}/{LogFile(last.writer, k).stem}" for k in range(last.number + 1, rows.file.number)]
        last = rows.file
        n += rows.table.num_rows
        ends[rows.file] = n
        tables.append(rows.table.combine_chunks())
    if not tables:
        spec = log.read_about().spec
        schema = decision_schema(spec) if kind == "decisions" else outcome_schema(spec)
        tables = [schema.empty_table() if columns is None else schema.empty_table().select(list(columns))]
    return LogTable(pa.concat_tables(tables), ends, torn, gone)


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
