"""Arrow IPC files of a dataset: shards, which hold rows of whole episodes, and the table of episodes.

A shard is one record batch without nulls; vectors and images are `arrow.fixed_shape_tensor`. Besides the columns of a `StepTable`
it holds `episode` (int64, counted through the whole dataset) and `step` (int32, the closing row's is T), which readers of d3ray
take from the table of episodes instead.
"""

from __future__ import annotations

import math
import mmap
import os
import secrets
import tempfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ..errors import ConfigError, D3rayError, DataError
from .episode_table import EpisodeTable
from .files import Place, sha256_of, storage_errors
from .manifest import File, Shard
from .schema import Kinds, Largest, kinds_of, largest_numbers
from .steps import StepTable

Compression = Literal["zstd"] | None
MAX_ELEMENTS = 2**31 - 1  # of one column of a record batch: Arrow refuses a longer fixed-size list
SHARD_BYTES = 1 << 30  # a shard's uncompressed size, unless asked for otherwise


@dataclass(frozen=True)
class ShardRecord:
    """Record of the file that a worker wrote and the episodes in it, for the process that commits."""

    shard: Shard
    index: int  # of the shard
    of: int  # so many
    kinds: Kinds
    largest: Largest
    first_episode: int
    steps: np.ndarray
    terminated: np.ndarray
    final_recorded: np.ndarray
    returns: np.ndarray
    cuts: int
    compression: Compression = None


def shard_name(index: int, of: int) -> str:
    """Return `data-00000-of-00004`."""
    return f"data-{index:05d}-of-{of:05d}"


def plan_shards(
    rows: np.ndarray, kinds: Kinds, *, n_shards: int | None = None, max_rows: int | None = None
) -> list[tuple[int, int]]:
    """Divide episodes, of which each has so many rows [E], into shards, as ranges; none is split.

    There are `n_shards`, of about the same number of rows (fewer where there are fewer episodes), or shards of at most `max_rows`,
    but for a longer episode; None: about 1 GiB. Raises DataError where a shard has more elements in a column than Arrow allows.
    """
    entries = max(math.prod(shape) for _, shape in kinds.values())
    limit = MAX_ELEMENTS // entries
    row_bytes = 12 + sum(math.prod(shape) * np.dtype(dtype).itemsize for dtype, shape in kinds.values())
    ends = np.cumsum(rows)
    for option, value in (("n_shards", n_shards), ("max_rows", max_rows)):
        if value is not None and value < 1:
            raise ConfigError(f"{option} is {value}; it is 1 or more.")
    if n_shards is not None:
        n = min(n_shards, len(rows))
        k = np.arange(1, n)
        cuts = np.searchsorted(ends, k * int(ends[-1]) // n) + 1 - k  # so that every shard has an episode:
        cuts = np.minimum(np.maximum.accumulate(cuts), len(rows) - n) + k
        plan = list(pairwise([0, *cuts.tolist(), len(rows)]))
    else:
        plan = list(_fill(ends, min(limit, max_rows or max(1, SHARD_BYTES // row_bytes))))
    for start, stop in plan:
        size = int(ends[stop - 1] - (ends[start - 1] if start else 0))
        if size > limit:
            what = "one episode" if stop == start + 1 else "a shard"
            raise DataError(f"{what.capitalize()} of {size} rows is too long: with entries of {entries} numbers {limit} rows fit.")
    return plan


def _fill(ends: np.ndarray, max_rows: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + max_rows, side="right")))
        yield start, stop
        start = stop


def write_shard(
    folder: str | Path | Place,
    index: int,
    of: int,
    table: StepTable,
    *,
    first_episode: int,
    compression: Compression = None,
) -> ShardRecord:
    """Write shard `index` of `of` into a folder or URI; whoever collects all records then calls `commit`.

    `first_episode` is the number of its first one in the whole dataset. Raises StorageError, which leaves nothing there.
    """
    place = folder if isinstance(folder, Place) else Place(folder)
    file = write_file(place, shard_name(index, of), shard_columns(table, first_episode), compression)
    return shard_record(table, file, index, of, first_episode, compression)


def shard_columns(table: StepTable, first_episode: int) -> dict[str, np.ndarray]:
    steps = np.concatenate([np.arange(n + 1, dtype=np.int32) for n in table.steps.tolist()])
    episode = np.repeat(np.arange(first_episode, first_episode + table.n_episodes), table.steps + 1)
    return {"episode": episode, "step": steps} | table.columns


def shard_record(
    table: StepTable, file: File, index: int, of: int, first_episode: int, compression: Compression = None
) -> ShardRecord:
    return ShardRecord(
        shard=Shard(**file.model_dump(), rows=table.n_rows, episodes=table.n_episodes),
        index=index,
        of=of,
        kinds=kinds_of(table.columns),
        largest=largest_numbers(table.columns),
        first_episode=first_episode,
        steps=table.steps,
        terminated=table.terminated,
        final_recorded=table.final_recorded,
        returns=table.returns,
        cuts=table.cuts,
        compression=compression,
    )


def write_episodes(place: Place, table: EpisodeTable) -> File:
    """Write the table of episodes: `first_row`, `steps`, `terminated`, `final_recorded`, `return`."""
    columns = {name: getattr(table, name) for name in ("first_row", "steps", "terminated", "final_recorded")}
    return write_file(place, "episodes", {**columns, "return": table.returns}, None)


def file_name(place: Place, name: str) -> str:
    """Return `name`.arrow, with a mark where files are replaced or behind a URI, so that no reader mixes two writes."""
    mark = place.mark or ("" if place.local is not None else secrets.token_hex(4))
    return f"{name}-{mark}.arrow" if mark else f"{name}.arrow"


def write_file(place: Place, name: str, columns: Mapping[str, np.ndarray], compression: Compression) -> File:
    """Write an Arrow file, called as `file_name` says. Raises StorageError."""
    place.make()
    full_name = file_name(place, name)
    what = place.address(full_name)
    with storage_errors("written", what), tempfile.TemporaryDirectory(prefix=".d3ray-", dir=place.local) as scratch:
        aside = Path(scratch) / name
        write_columns(aside, columns, compression)
        file = File(file=full_name, bytes=aside.stat().st_size, sha256=sha256_of(aside))
        place.put(aside, full_name)
    return file


def write_columns(path: Path, columns: Mapping[str, np.ndarray], compression: Compression = None) -> None:
    """Write a local Arrow file of one record batch, on the disk when this returns. Raises OSError."""
    batch = pa.record_batch([to_arrow(column) for column in columns.values()], names=list(columns))
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    with path.open("rb") as written:  # close() tells nothing of a disk that fills up later
        os.fsync(written.fileno())


def to_arrow(column: np.ndarray) -> Any:
    """Wrap the same memory (flags are packed into bits). `pyarrow.array` would load pandas."""
    flat = np.ascontiguousarray(column).reshape(-1)
    bits = np.packbits(flat, bitorder="little") if flat.dtype == np.bool_ else flat
    array = pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(bits)])
    if column.ndim == 1:
        return array
    kind = pa.fixed_shape_tensor(array.type, column.shape[1:])
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(array, kind.storage_type.list_size))


def to_numpy(column: Any) -> np.ndarray:
    """View the same memory, read-only (flags are unpacked). `to_numpy` of pyarrow would load pandas."""
    flat = column
    if isinstance(column, pa.ExtensionArray):  # `flatten` would load pyarrow.compute
        size = column.storage.type.list_size
        flat = column.storage.values.slice(column.storage.offset * size, len(column) * size)
    if column.null_count or flat.null_count:
        raise pa.ArrowInvalid("it holds nulls")
    bits = flat.buffers()[1]
    if pa.types.is_boolean(flat.type):
        unpacked = np.unpackbits(np.frombuffer(bits, np.uint8), count=flat.offset + len(flat), bitorder="little")
        values = unpacked[flat.offset :].view(np.bool_)
    else:
        values = np.frombuffer(bits, _dtype(str(flat.type)), len(flat), flat.offset * flat.type.byte_width)
    values.flags.writeable = False
    return values.reshape(len(column), *getattr(column.type, "shape", ()))


def _dtype(arrow: str) -> np.dtype[Any]:
    return np.dtype({"halffloat": "float16", "float": "float32", "double": "float64"}.get(arrow, arrow))


class ShardColumns(Mapping[str, np.ndarray]):
    """Columns of one local Arrow file, each made when it is first asked for. Raises DataError where it holds something else.

    Without compression they are read-only views of the mapped file, except flags, which Arrow packs into bits.
    """

    def __init__(self, path: Path, kinds: Kinds, rows: int, label: str, *, compressed: bool) -> None:
        self._kinds, self._rows, self._label, self._compressed = kinds, rows, label, compressed
        self._made: dict[str, np.ndarray] = {}
        with arrow_errors(label):
            with path.open("rb") as file:  # mapped by Python: pyarrow would ask the system to read all of it ahead
                self._file = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            self._places: dict[str, int] = {name: k for k, name in enumerate(pa.ipc.open_file(self._file).schema.names)}
        for name in kinds:
            if name not in self._places:
                raise DataError(f"{label} is damaged: it has no column {name!r}.")

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._made:
            if name not in self._kinds:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def forget(self, name: str) -> None:
        """Drop what was unpacked of a column; it is made again when it is asked for."""
        self._made.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def _make(self, name: str) -> np.ndarray:
        with arrow_errors(self._label):
            values = to_numpy(self._column(name))
        if (values.dtype.name, values.shape) != (self._kinds[name][0], (self._rows, *self._kinds[name][1])):
            raise DataError(f"{self._label} is damaged: {name!r} is {values.dtype} {list(values.shape)}, not what was written.")
        return values

    @cached_property
    def _batch(self) -> Any:
        """All columns, as views; to make it takes longer the more there are, so it is made once."""
        return pa.ipc.open_file(self._file).get_batch(0)

    def _column(self, name: str) -> Any:
        if not self._compressed:
            return self._batch.column(self._places[name])
        options = pa.ipc.IpcReadOptions(included_fields=[self._places[name]])  # copies, but unpacks this column only
        return pa.ipc.open_file(self._file, options=options).get_batch(0).column(0)


@contextmanager
def arrow_errors(label: str) -> Generator[None]:
    """Turn what Arrow says of a damaged file into a DataError."""
    try:
        yield
    except D3rayError:
        raise
    except FileNotFoundError:
        raise DataError(f"{label} is missing.") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{label} is damaged: {str(error).splitlines()[0].rstrip('.')}.") from None
