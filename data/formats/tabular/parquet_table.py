"""Parquet files with a row a step: opened, and their columns as arrays."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DataError
from ...storage.json_text import parse_json
from ..arrays import Array, damaged, existing_file
from ..untrusted.archives import head
from ..untrusted.unpacking import ROW, left, needs, unpacking, unpacks
from .arrow_columns import array_of

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}  # bytes of a value
_NARROW = {"INT_8": 1, "UINT_8": 1, "INT_16": 2, "UINT_16": 2}  # bytes of numbers that are stored in 32 bits
SHAPE = b"shape"  # a field's metadata: "84,84", of an entry that is stored flat
NAMES = b"names"  # a JSON list of what the numbers of an entry are called


def is_parquet(path: Path) -> bool:
    return head(path, 4) == b"PAR1"


class Parquet(pq.ParquetFile):
    """A Parquet file, opened for reading."""

    @cached_property
    def leaves(self) -> dict[str, list[int]]:
        """Numbers of the columns that hold values, by the column of the table, or the part of one, that they belong to."""
        found: dict[str, list[int]] = {}
        for k in range(self.metadata.num_columns):
            parts = self.schema.column(k).path.split(".")
            for n in range(len(parts)):
                found.setdefault(".".join(parts[: n + 1]), []).append(k)
        return found


@contextmanager
def open_parquet(path: Path | str) -> Generator[Parquet]:
    """Open a file for reading; what reading it raises becomes a DataError."""
    path = existing_file(path)
    if not is_parquet(path):
        raise DataError(f"{path} is not a Parquet file.")
    raised = (pa.ArrowException, OSError, ValueError, NotImplementedError)
    with unpacking(path), damaged(str(path), "a Parquet file", raised), Parquet(path) as file:
        yield file


def names_of(field: Any) -> tuple[str, ...]:
    """Read what the numbers of a column's entries are called; none where its field does not say it."""
    try:
        found: Any = parse_json((field.metadata or {}).get(NAMES, b"[]"))
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


def read_table(file: Parquet, source: str, names: list[str] | None = None, groups: list[int] | None = None) -> Any:
    """Read columns of row groups, once they are known to unpack to no more than may be made of the file."""
    groups = list(range(file.metadata.num_row_groups)) if groups is None else groups
    sizes = [_size(file, names, k) for k in groups]
    known, repeated = sum(size for size, _ in sizes), sum(most for _, most in sizes)
    needs(source, known)
    if not repeated or known + repeated <= left():
        unpacks(source, known)
        return file.read_row_groups(groups, names)
    n_rows = sum(file.metadata.row_group(k).num_rows for k in groups)
    at_once, batches = max(1, left() * n_rows // repeated // 2), list[pa.RecordBatch]()
    for batch in file.iter_batches(at_once, groups, names, use_threads=False):
        unpacks(source, batch.nbytes)
        batches.append(batch)
    return pa.Table.from_batches(batches, batches[0].schema if batches else file.read_row_groups([], names).schema)


def _size(file: Parquet, names: list[str] | None, group: int) -> tuple[int, int]:
    """Return bytes of columns in a row group as arrays, and what text and bytes may add: a dictionary has many a value once."""
    about, n_bytes, most = file.metadata.row_group(group), 0, 0
    for k in range(about.num_columns) if names is None else [k for name in names for k in file.leaves.get(name, ())]:
        column, kind = about.column(k), file.schema.column(k)
        width = _NARROW.get(kind.converted_type) or _WIDTHS.get(column.physical_type) or max(kind.length, 1)
        n_bytes += max(column.total_uncompressed_size, max(column.num_values, about.num_rows) * width) + about.num_rows * ROW
        if column.physical_type == "BYTE_ARRAY" and column.has_dictionary_page:
            most += column.num_values * column.total_uncompressed_size
    return n_bytes, most


def unpacked_bytes(file: Parquet) -> int:
    """Count bytes of all columns as arrays; text and bytes as they are stored."""
    return sum(_size(file, None, k)[0] for k in range(file.metadata.num_row_groups))


def raw_column(file: Parquet, name: str, source: str, rows: slice | None = None) -> Any:
    """Read a column as Arrow has it, or some of its rows, through the row groups that they lie in."""
    if rows is None:
        return read_table(file, source, [name]).column(name)
    groups = range(file.metadata.num_row_groups)
    ends = np.cumsum([file.metadata.row_group(k).num_rows for k in groups])
    first, last = np.searchsorted(ends, [rows.start, rows.stop - 1], side="right")
    before = int(ends[first - 1]) if first else 0
    table = read_table(file, source, [name], list(groups)[first : last + 1])
    return table.column(name).slice(rows.start - before, rows.stop - rows.start)


def read_column(file: Parquet, name: str, source: str, rows: slice | None = None) -> Array:
    """Read [N, ...] numbers of a column, or of some of its rows, in the shape that its field gives."""
    about = file.schema_arrow.field(name)
    values = array_of(source, name, raw_column(file, name, source, rows), about)
    if isinstance(values, dict):
        raise DataError(f"{source}: column {name!r} has parts ({', '.join(values)}); numbers are needed.")
    if said := (about.metadata or {}).get(SHAPE):
        shape = tuple(int(n) for n in said.decode("ascii", "replace").split(",") if n.isdecimal())
        if len(values) and values[0].size != np.prod(shape, dtype=np.int64):
            raise DataError(f"{source}: column {name!r} has entries of {values[0].size} numbers and says the shape {list(shape)}.")
        values = values.reshape(len(values), *shape)
    return values
