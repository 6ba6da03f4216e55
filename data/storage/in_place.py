"""Rows of a dataset folder, read in any order from where they lie: only what is asked for is read, and nothing is mapped.

A shard of one uncompressed record batch has each column as one run of bytes, so rows are found by arithmetic once it is known where
that run begins. It is read at that place, from a disk or, by range requests, from an object store. What is read this way is not
compared with SHA-256s, which are those of whole shards.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections import OrderedDict
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import DataError
from .files import Place, storage_errors
from .manifest import Manifest
from .shards import arrow_errors

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
        first, last = np.searchsorted(self._first, [start, stop - 1], side="right") - 1
        parts: list[np.ndarray] = []
        for k in range(int(first), int(last) + 1):
            offset = int(self._first[k])
            parts.append(self._read(k, name, max(start - offset, 0), min(stop, int(self._first[k + 1])) - offset))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

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
