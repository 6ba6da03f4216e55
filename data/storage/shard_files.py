"""Shards of a dataset folder, read one after the other."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, StorageError
from .claims import scratch_names
from .files import Place, sha256_of, storage_errors
from .manifest import Manifest, Shard
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
        return _shard_files, (self.place, self.shards, self.kinds, self.compressed, self.verify)

    def names(self) -> list[str]:
        return list(self.kinds)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows of a column: a view where they lie in one uncompressed shard."""
        if stop <= start:
            dtype, shape = self.kinds[name]
            return np.empty((0, *shape), dtype)
        first, last = np.searchsorted(self.first_row, [start, stop - 1], side="right") - 1
        self._leave_behind(int(first))
        parts: list[np.ndarray] = []
        for k in range(int(first), int(last) + 1):
            offset = int(self.first_row[k])
            parts.append(self.columns(k)[name][max(start - offset, 0) : stop - offset])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

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


def _shard_files(place: Place, shards: tuple[Shard, ...], kinds: Kinds, compressed: bool, verify: bool) -> ShardFiles:
    return ShardFiles(place, shards, kinds, compressed=compressed, verify=verify)


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
