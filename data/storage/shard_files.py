"""Shards of a dataset folder, read one after the other, or in any order from where they lie."""

from __future__ import annotations

import math
import mmap
import struct
import tempfile
import time
from collections import OrderedDict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import DataError, StorageError
from .claims import scratch_names
from .files import Place, sha256_of, storage_errors
from .manifest import Manifest, Shard
from .rows import joined, spans
from .schema import Kinds
from .shards import ShardColumns, arrow_errors

_WAITS = (0.2, 1.0, None)  # seconds after each attempt to read a shard


class ShardFiles:
    """Logical rows over shards, in memory one shard at a time: what is scanned before there is a node map, and what builds it.

    Shards of another machine are copied to `scratch` one by one; None: to a temporary folder, deleted with this object. Columns of
    compressed ones are unpacked one by one. `verify` compares each shard with its SHA-256 when it is opened.
    """

    def __init__(
        self,
        place: Place,
        shards: tuple[Shard, ...],
        kinds: Kinds,
        *,
        compressed: bool = False,
        scratch: Path | None = None,
        verify: bool = False,
    ) -> None:
        self.place, self.shards, self.kinds, self.compressed, self.verify = place, shards, kinds, compressed, verify
        self.first_row = np.cumsum([0, *(shard.rows for shard in shards)])
        self.n = int(self.first_row[-1])
        self._scratch, self._temporary = scratch, None
        if scratch is None and place.local is None:
            self._temporary = tempfile.TemporaryDirectory(prefix=scratch_names("shards"))
            self._scratch = Path(self._temporary.name)
        self._open: dict[int, ShardColumns] = {}
        self._copied: dict[int, Path] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"compressed": self.compressed, "verify": self.verify}
        return partial(ShardFiles, **options), (self.place, self.shards, self.kinds)

    def names(self) -> list[str]:
        return list(self.kinds)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows of a column: a view where they lie in one uncompressed shard."""
        if stop <= start:
            dtype, shape = self.kinds[name]
            return np.empty((0, *shape), dtype)
        found = list(spans(self.first_row, start, stop))
        self._leave_behind(found[0][0])
        return joined([self.columns(k)[name][a:b] for k, a, b in found])

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Read rows of a column by number, which are best asked for from the first shard to the last."""
        dtype, shape = self.kinds[name]
        out = np.empty((len(rows), *shape), dtype)
        shard = np.searchsorted(self.first_row, rows, side="right") - 1
        touched = np.unique(shard).tolist()
        self._leave_behind(touched[0] if touched else 0)
        for k in touched:
            mine = shard == k
            out[mine] = self.columns(k)[name][rows[mine] - int(self.first_row[k])]
            if k != touched[-1]:  # what is read next begins in the last one; the others' unpacked columns may go
                self.columns(k).forget(name)
        return out

    def _leave_behind(self, first: int) -> None:
        """Close shards before `first`: rows are read in order."""
        for k in [k for k in self._open if k < first]:
            self.close(k)

    def columns(self, k: int, *, verify: bool = False) -> ShardColumns:
        """Open columns of shard `k`, twice more where that fails as over a network. Raises DataError or StorageError."""
        for wait in _WAITS if k not in self._open else ():
            try:
                self._open[k] = self._opened(k, verify or self.verify)
                break
            except (DataError, StorageError) as error:
                self.close(k)
                if wait is None or (isinstance(error, DataError) and self.place.local is not None):
                    raise
                time.sleep(wait)
        return self._open[k]

    def _opened(self, k: int, verify: bool) -> ShardColumns:
        shard = self.shards[k]
        label = self.place.address(shard.file)
        with storage_errors("read", label):
            path = self._path(k)
            check_file(path, shard, label, verify=verify)
            return ShardColumns(path, self.kinds, shard.rows, label, compressed=self.compressed)

    def _path(self, k: int) -> Path:
        name = self.shards[k].file
        if self.place.local is not None:
            return self.place.local / name
        if k not in self._copied:
            assert self._scratch is not None
            target = self._scratch / name
            with arrow_errors(self.place.address(name)):
                self.place.fetch(name, target)
            self._copied[k] = target
        return self._copied[k]

    def close(self, k: int) -> None:
        """Forget shard `k`, and delete its copy."""
        self._open.pop(k, None)
        if k in self._copied:
            self._copied.pop(k).unlink(missing_ok=True)


def shard_files(place: Place, manifest: Manifest, scratch: Path | None = None, *, verify: bool = False) -> ShardFiles:
    compressed = manifest.compression is not None
    return ShardFiles(place, manifest.shards, manifest.kinds, compressed=compressed, scratch=scratch, verify=verify)


def check_file(path: Path, shard: Shard, label: str, *, verify: bool) -> None:
    """Raise DataError where a local file has another size or (where asked) other content than was written."""
    size = path.stat().st_size if path.is_file() else None
    check_size(size, shard.bytes, label)
    if verify and sha256_of(path) != shard.sha256:
        raise DataError(f"{label} is damaged: its content is not what was written (SHA-256 differs).")


def check_size(size: int | None, expected: int, label: str) -> None:
    """Raise DataError where a file is missing or has another size than was written."""
    if size is None:
        raise DataError(f"{label} is missing.")
    if size != expected:
        kind = "truncated" if size < expected else "damaged"
        raise DataError(f"{label} is {kind}: it has {size:,} bytes of {expected:,}.")


_HEAD = 1 << 16  # bytes with which a shard begins: its schema, and where columns lie, with room for hundreds of them
_MAGIC = 8  # bytes in front of the first message
_OPEN = 64  # shards whose files are kept open
_GAP = 1 << 14  # bytes between wanted rows that are read along, where to ask once more would take longer


class InPlace:
    """Rows over uncompressed shards. Picklable, and several threads may read at once. Raises DataError of compressed ones."""

    def __init__(self, place: Place, manifest: Manifest) -> None:
        if manifest.compression is not None:
            raise DataError(
                f"{place} is compressed ({manifest.compression}), and pieces of its shards cannot be read alone: write it anew "
                "without compression."
            )
        self._place, self._manifest, self.n = place, manifest, manifest.n_rows
        self._first = np.cumsum([0, *(shard.rows for shard in manifest.shards)])
        self._open: OrderedDict[int, tuple[Any, dict[str, int]]] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return InPlace, (self._place, self._manifest)

    def names(self) -> list[str]:
        return list(self._manifest.kinds)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows `start` … `stop - 1`. Raises DataError of a damaged shard, StorageError of one that cannot be read."""
        if stop <= start:
            dtype, shape = self._manifest.kinds[name]
            return np.empty((0, *shape), dtype)
        return joined([self._read(k, name, a, b) for k, a, b in spans(self._first, start, stop)])

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Read rows by number; those that lie close together are read at once."""
        dtype, shape = self._manifest.kinds[name]
        out, by = np.empty((len(rows), *shape), dtype), np.diff(rows)
        near = 1 + _GAP // max(1, math.prod(shape) * out.dtype.itemsize)
        for a, b in pairwise([0, *(np.flatnonzero((by < 1) | (by > near)) + 1).tolist(), len(rows)]):
            if b > a:
                found = self.read(name, int(rows[a]), int(rows[b - 1]) + 1)
                out[a:b] = found if len(found) == b - a else found[rows[a:b] - rows[a]]
        return out

    def _read(self, k: int, name: str, start: int, stop: int) -> np.ndarray:
        dtype, shape = self._manifest.kinds[name]
        width, label = math.prod(shape), self._place.address(self._manifest.shards[k].file)
        file, begins = self._file(k)
        low, high = start * width, stop * width
        with storage_errors("read", label):
            if dtype == "bool":  # packed into bits
                packed = np.frombuffer(_exactly(file, begins[name] + low // 8, -(-high // 8) - low // 8, label), np.uint8)
                values = np.unpackbits(packed, count=low % 8 + high - low, bitorder="little")[low % 8 :].view(np.bool_)
            else:
                size = np.dtype(dtype).itemsize
                values = np.frombuffer(_exactly(file, begins[name] + low * size, (high - low) * size, label), dtype)
        return values.reshape(-1, *shape)

    def _file(self, k: int) -> tuple[Any, dict[str, int]]:
        """Open a shard's file, and find where in it each column's numbers begin."""
        found = self._open.get(k)
        if found is None:
            file = self._place.open(self._manifest.shards[k].file)
            found = self._open[k] = file, self._columns(k, file)
            while len(self._open) > _OPEN:  # whoever reads from one of these still holds it
                self._open.popitem(last=False)
        return found

    def _columns(self, k: int, file: Any) -> dict[str, int]:
        """Find where columns begin. Arrow says it of the whole file, and looks at its head alone: the rest stands here as zeros."""
        shard, kinds = self._manifest.shards[k], self._manifest.kinds
        label = self._place.address(shard.file)
        with arrow_errors(label):
            head = file.read_at(min(_HEAD, shard.bytes), 0)
            (schema,) = struct.unpack_from("<i", head, _MAGIC + 4)
            (batch,) = struct.unpack_from("<i", head, _MAGIC + 8 + schema + 4) if 0 < schema < len(head) - 24 else (shard.bytes,)
            if (end := _MAGIC + 16 + schema + batch) > len(head):
                head = file.read_at(min(max(end, 0), shard.bytes), 0)
            with_zeros = mmap.mmap(-1, shard.bytes)  # takes no memory where nothing is written
            with_zeros[: len(head)] = head
            buffer = pa.py_buffer(with_zeros)
            found = pa.ipc.open_stream(buffer[_MAGIC:]).read_next_batch()
            if found.num_rows != shard.rows:
                raise DataError(f"{label} is damaged: it has {found.num_rows} rows of {shard.rows}.")
            begins: dict[str, int] = {}
            for name, (dtype, shape) in kinds.items():
                if name not in found.schema.names:
                    raise DataError(f"{label} is damaged: it has no column {name!r}.")
                column = found.column(name)
                flat = column.storage.values if isinstance(column, pa.ExtensionArray) else column
                if (str(flat.type), len(flat)) != (_ARROW.get(dtype, dtype), shard.rows * math.prod(shape)):
                    raise DataError(f"{label} is damaged: {name!r} is {len(flat)} of {flat.type}, not what was written.")
                begins[name] = flat.buffers()[1].address - buffer.address
        return begins


_ARROW = {"float16": "halffloat", "float32": "float", "float64": "double"}


def _exactly(file: Any, offset: int, size: int, label: str) -> bytes:
    found: bytes = file.read_at(size, offset)
    if len(found) != size:
        raise DataError(f"{label} is truncated: it ends at {offset + len(found):,}.")
    return found
