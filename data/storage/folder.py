"""A dataset folder that is open: its manifest and episodes are read, its shards are read when they are asked for."""

from __future__ import annotations

import hashlib
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..episodes import Columns
from ..errors import DataError
from .files import Place, sha256_of
from .fingerprint import fingerprint
from .manifest import MANIFEST, Manifest, Shard, read_manifest
from .rows import ArrayRows, Table
from .schema import Kinds
from .shards import ShardColumns, arrow_errors, to_numpy


class ShardFiles:
    """Logical rows over shards, in memory one shard at a time: what is scanned before there is a node map, and what builds it.

    Shards of another machine are copied to `scratch` one by one.

    Args:
        place: the folder of the shards.
        shards: all of them, in order.
        kinds: their columns.
        compressed: whether they were written with compression; columns are then unpacked one by one.
        scratch: where to copy; None: a temporary folder, deleted with this object.
        verify: compare each shard with its SHA-256 when it is opened.
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
            self._temporary = tempfile.TemporaryDirectory(prefix="d3ray-")
            self._scratch = Path(self._temporary.name)
        self._open: dict[int, ShardColumns] = {}
        self._copied: dict[int, Path] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _shard_files, (self.place, self.shards, self.kinds, self.compressed, self.verify)

    def names(self) -> list[str]:
        return list(self.kinds)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows of a column: a view where they lie in one uncompressed shard."""
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
        """Rows of a column by number, which are best asked for from the first shard to the last."""
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
        """Rows are read in order, so shards before `first` are done with."""
        for k in [k for k in self._open if k < first]:
            self._close(k)

    def columns(self, k: int, *, verify: bool = False) -> ShardColumns:
        """Columns of shard `k`. Raises DataError: it is missing, or its size or (where asked) its content has changed."""
        if k not in self._open:
            shard, path = self.shards[k], self._path(k)
            label = f"{self.place}/{shard.file}"
            check_file(path, shard, label, verify=verify or self.verify)
            self._open[k] = ShardColumns(path, self.kinds, shard.rows, label, compressed=self.compressed)
        return self._open[k]

    def _path(self, k: int) -> Path:
        name = self.shards[k].file
        if self.place.local is not None:
            return self.place.local / name
        if k not in self._copied:
            assert self._scratch is not None
            target = self._scratch / name
            with arrow_errors(f"{self.place}/{name}"):
                self.place.fetch(name, target)
            self._copied[k] = target
        return self._copied[k]

    def _close(self, k: int) -> None:
        self._open.pop(k)
        if k in self._copied:
            self._copied.pop(k).unlink()

    def close(self, k: int) -> None:
        """Forgets shard `k`, and deletes its copy."""
        if k in self._open:
            self._close(k)


def _shard_files(place: Place, shards: tuple[Shard, ...], kinds: Kinds, compressed: bool, verify: bool) -> ShardFiles:
    return ShardFiles(place, shards, kinds, compressed=compressed, verify=verify)


def shard_files(place: Place, manifest: Manifest, scratch: Path | None = None, *, verify: bool = False) -> ShardFiles:
    """The shards of a manifest, to be read one after the other."""
    compressed = manifest.compression is not None
    return ShardFiles(place, manifest.shards, manifest.kinds, compressed=compressed, scratch=scratch, verify=verify)


def check_file(path: Path, shard: Shard, label: str, *, verify: bool) -> None:
    """Raises DataError where a local file has another size or (where asked) other content than was written."""
    size = path.stat().st_size if path.is_file() else None
    check_size(size, shard.bytes, label)
    if verify and sha256_of(path) != shard.sha256:
        raise DataError(f"{label} is damaged: its content is not what was written (SHA-256 differs).")


def check_size(size: int | None, expected: int, label: str) -> None:
    """Raises DataError where a file is missing or has another size than was written."""
    if size is None:
        raise DataError(f"{label} is missing.")
    if size != expected:
        kind = "truncated" if size < expected else "damaged"
        raise DataError(f"{label} is {kind}: it has {size:,} bytes of {expected:,}.")


class Folder:
    """An open dataset folder. `columns()` maps what is to be read, once; pickled it is opened anew.

    Raises:
        DataError: there is no dataset, its manifest is damaged, or a file of it is missing or of another size.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.manifest: Manifest = read_manifest(place)
        self._columns: Columns | None = None
        files = [self.manifest.episodes, *self.manifest.shards]
        sizes = place.sizes(file.file for file in files)
        for file in files:
            check_size(sizes[file.file], file.bytes, f"{place}/{file.file}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.place, self.manifest.fingerprint)

    def episodes(self) -> dict[str, np.ndarray]:
        """Columns of the table of episodes."""
        import pyarrow as pa

        file = self.manifest.episodes
        label = f"{self.place}/{file.file}"
        content = self.place.read(file.file)
        if content is None or hashlib.sha256(content).hexdigest() != file.sha256:
            raise DataError(f"{label} is damaged: its content is not what was written (SHA-256 differs).")
        with arrow_errors(label):
            batch = pa.ipc.open_file(pa.py_buffer(content)).get_batch(0)
            arrays = {name: to_numpy(batch.column(name)) for name in batch.schema.names}
        digests = {column.name: column.digest for column in self.manifest.columns}
        if fingerprint(self.manifest.n_rows, self.manifest.kinds, digests, arrays["final_recorded"]) != self.manifest.fingerprint:
            raise DataError(f"{self.place}/{MANIFEST} is damaged: its fingerprint is not that of its columns.")
        return arrays

    def columns(self) -> Columns:
        """Views of the one shard of a local uncompressed dataset, or of the node map, which is built where there is none.

        Raises:
            DataError: a shard is damaged.
            StorageError: the node map has no room.
        """
        if self._columns is None:
            if self.is_mapped_as_it_is:
                self._columns = self.shards().columns(0)
            else:
                from ..node_maps.node_map import node_map

                self._columns = node_map(self.place, self.manifest)
        return self._columns

    @property
    def is_mapped(self) -> bool:
        """Whether `columns()` costs nothing more."""
        return self._columns is not None or self.is_mapped_as_it_is

    @property
    def is_mapped_as_it_is(self) -> bool:
        """Whether no node map is needed: one local shard without compression."""
        return self.place.local is not None and len(self.manifest.shards) == 1 and self.manifest.compression is None

    @property
    def kinds(self) -> Kinds:
        """The columns' types and entry shapes."""
        return self.manifest.kinds

    @property
    def folders(self) -> tuple[Folder, ...]:
        """This one."""
        return (self,)

    @property
    def in_memory(self) -> bool:
        """False: other processes can read it too."""
        return False

    def table(self, *, in_order: bool) -> Table:
        """Its rows, to be read piece by piece; a worker that gets it opens the folder anew."""
        return _FolderRows(self, in_order)

    def shards(self, scratch: Path | None = None, *, verify: bool = False) -> ShardFiles:
        """The shards, to be read one after the other."""
        return shard_files(self.place, self.manifest, scratch, verify=verify)

    def verify(self) -> None:
        """Reads every shard. Raises DataError where one is not what was written."""
        files = self.shards()
        for k in range(len(self.manifest.shards)):
            files.columns(k, verify=True)
            files.close(k)


def _reopened(place: Place, expected: str) -> Folder:
    """A folder, in another process. Raises DataError: another dataset lies there by now; episodes that were read are not its."""
    folder = Folder(place)
    if folder.manifest.fingerprint != expected:
        raise DataError(f"{place} was replaced by another dataset while it was in use; open it anew.")
    return folder


class _FolderRows:
    """Rows of an open folder: shard by shard where they are asked for in order, each verified, else from mapped columns."""

    def __init__(self, folder: Folder, in_order: bool) -> None:
        self._folder, self._in_order, self.n = folder, in_order, folder.manifest.n_rows

    def __reduce__(self) -> tuple[Any, ...]:
        return _FolderRows, (self._folder, self._in_order)

    @cached_property
    def _table(self) -> Table:
        if self._folder.is_mapped or not self._in_order:
            return ArrayRows(self._folder.columns())
        return self._folder.shards(verify=True)

    def names(self) -> list[str]:
        return list(self._folder.kinds)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        return self._table.read(name, start, stop)

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        return self._table.take(name, rows)
