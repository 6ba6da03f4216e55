"""Parquet files with a row a step: opened, and their columns as arrays."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import D3rayError, DataError
from ..imported import Array, existing_file
from .arrow_columns import array_of

SHAPE = b"shape"  # a field's metadata: "84,84", of an entry that is stored flat


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet does."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


@contextmanager
def open_parquet(path: Path | str) -> Generator[pq.ParquetFile]:
    """The file, opened for reading; what reading it raises becomes a `DataError`.

    Raises:
        DataError: not there, not Parquet, cut short or damaged.
    """
    path = existing_file(path)
    if not is_parquet(path):
        raise DataError(f"{path} is not a Parquet file.")
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except D3rayError:
        raise
    except MemoryError as error:
        raise DataError(f"{path}: {error or 'a column does not fit into memory'}.") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise DataError(f"{path} is a Parquet file that is cut short or damaged ({reason}).") from None


def read_column(file: pq.ParquetFile, name: str, source: str) -> Array:
    """[N, ...] numbers of a column, in the shape that its field gives.

    Raises:
        DataError: a value is missing, entries differ in length or hold no numbers; column and row are named.
    """
    about = file.schema_arrow.field(name)
    values = array_of(source, name, file.read([name]).column(name), about)
    if isinstance(values, dict):
        raise DataError(f"{source}: column {name!r} has parts ({', '.join(values)}); numbers are needed.")
    if said := (about.metadata or {}).get(SHAPE):
        shape = tuple(int(n) for n in said.decode("ascii", "replace").split(",") if n.isdecimal())
        if len(values) and values[0].size != np.prod(shape, dtype=np.int64):
            raise DataError(f"{source}: column {name!r} has entries of {values[0].size} numbers and says the shape {list(shape)}.")
        values = values.reshape(len(values), *shape)
    return values
