"""Parquet files with a row a step: opened, and their columns as arrays."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import DataError
from ...storage.json_text import parse_json
from ..imported import Array, damaged, existing_file
from ..untrusted.archives import head
from .arrow_columns import array_of

SHAPE = b"shape"  # a field's metadata: "84,84", of an entry that is stored flat
NAMES = b"names"  # a JSON list of what the numbers of an entry are called


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet does."""
    return head(path, 4) == b"PAR1"


@contextmanager
def open_parquet(path: Path | str) -> Generator[pq.ParquetFile]:
    """The file, opened for reading; what reading it raises becomes a `DataError`.

    Raises:
        DataError: not there, not Parquet, cut short or damaged.
    """
    path = existing_file(path)
    if not is_parquet(path):
        raise DataError(f"{path} is not a Parquet file.")
    raised = (pa.ArrowException, OSError, ValueError, NotImplementedError)
    with damaged(str(path), "a Parquet file", raised), pq.ParquetFile(path) as file:
        yield file


def names_of(field: Any) -> tuple[str, ...]:
    """What the numbers of a column's entries are called; none where its field does not say it."""
    try:
        found: Any = parse_json((field.metadata or {}).get(NAMES, b"[]"))
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()


def raw_column(file: pq.ParquetFile, name: str, rows: slice | None = None) -> Any:
    """A column as Arrow has it, or some of its rows, for which the row groups that they lie in are read."""
    if rows is None:
        return file.read([name]).column(name)
    groups = range(file.metadata.num_row_groups)
    ends = np.cumsum([file.metadata.row_group(k).num_rows for k in groups])
    first, last = np.searchsorted(ends, [rows.start, rows.stop - 1], side="right")
    before = int(ends[first - 1]) if first else 0
    table = file.read_row_groups(list(groups)[first : last + 1], [name])
    return table.column(name).slice(rows.start - before, rows.stop - rows.start)


def read_column(file: pq.ParquetFile, name: str, source: str, rows: slice | None = None) -> Array:
    """[N, ...] numbers of a column, or of some of its rows, in the shape that its field gives.

    Raises:
        DataError: a value is missing, entries differ in length or hold no numbers; column and row are named.
    """
    about = file.schema_arrow.field(name)
    values = array_of(source, name, raw_column(file, name, rows), about)
    if isinstance(values, dict):
        raise DataError(f"{source}: column {name!r} has parts ({', '.join(values)}); numbers are needed.")
    if said := (about.metadata or {}).get(SHAPE):
        shape = tuple(int(n) for n in said.decode("ascii", "replace").split(",") if n.isdecimal())
        if len(values) and values[0].size != np.prod(shape, dtype=np.int64):
            raise DataError(f"{source}: column {name!r} has entries of {values[0].size} numbers and says the shape {list(shape)}.")
        values = values.reshape(len(values), *shape)
    return values
