"""A dataset folder that is open: its manifest and episodes are read, its shards are read when they are asked for."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DataError
from .storage.episode_table import EpisodeTable
from .storage.files import Place
from .storage.fingerprint import fingerprint
from .storage.manifest import MANIFEST, Manifest, Shard, read_manifest
from .storage.rows import ArrayRows, Columns, Table
from .storage.schema import Kinds
from .storage.shard_files import InPlace, ShardFiles, check_size, shard_files
from .storage.shards import arrow_errors, to_numpy


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
            check_size(sizes[file.file], file.bytes, place.address(file.file))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.place, self.manifest.fingerprint)

    def episodes(self) -> EpisodeTable:
        """Read the table of episodes, checked against its SHA-256 and the fingerprint."""
        import pyarrow as pa

        file = self.manifest.episodes
        label = self.place.address(file.file)
        content = self.place.read(file.file)
        if content is None:
            raise DataError(f"{label} is missing.")
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise DataError(f"{label} is damaged: its content is not what was written (SHA-256 differs).")
        with arrow_errors(label):
            batch = pa.ipc.open_file(pa.py_buffer(content)).get_batch(0)
            arrays = {name: to_numpy(batch.column(name)) for name in batch.schema.names}
        digests = {column.name: column.digest for column in self.manifest.columns}
        if fingerprint(self.manifest.n_rows, self.manifest.kinds, digests, arrays["final_recorded"]) != self.manifest.fingerprint:
            raise DataError(f"{self.place.address(MANIFEST)} is damaged: its fingerprint is not that of its columns.")
        return EpisodeTable(*(arrays[name] for name in ("first_row", "steps", "terminated", "final_recorded", "return")))

    def columns(self) -> Columns:
        """Map the one shard of a local uncompressed dataset, or the node map, which is built where there is none.

        Either is compared with SHA-256s once a machine, not at every opening. Raises DataError of a damaged shard.
        """
        if self._columns is None:
            if self.is_mapped_as_it_is:
                from .node_maps.node_map import check_once

                check_once(*self._whole_shard())
                self._columns = self.shards().columns(0)
            else:
                from .node_maps.node_map import node_map

                self._columns = node_map(self.place, self.manifest)
        return self._columns

    @property
    def is_mapped(self) -> bool:
        """True where `columns()` costs nothing more than a comparison when the file is first seen."""
        return self._columns is not None or self.is_mapped_as_it_is

    @property
    def is_mapped_as_it_is(self) -> bool:
        """True where no node map is needed: one local shard without compression."""
        return self.place.local is not None and len(self.manifest.shards) == 1 and self.manifest.compression is None

    @property
    def kinds(self) -> Kinds:
        return self.manifest.kinds

    @property
    def folders(self) -> tuple[Folder, ...]:
        return (self,)

    @property
    def in_memory(self) -> bool:
        return False

    def table(self, *, in_order: bool) -> Table:
        """Open the rows to be read piece by piece; a worker that gets them opens the folder anew."""
        return _FolderRows(self, in_order)

    def in_place(self) -> Table:
        """Open the rows to be read in any order from the shards. Raises DataError where these are compressed."""
        return InPlace(self.place, self.manifest)

    def shards(self, scratch: Path | None = None, *, verify: bool = False) -> ShardFiles:
        return shard_files(self.place, self.manifest, scratch, verify=verify)

    def verify(self) -> None:
        """Read every shard. Raises DataError where one is not what was written."""
        files = self.shards()
        for k in range(len(self.manifest.shards)):
            files.columns(k, verify=True)
            files.close(k)
        self.note_verified()

    def note_verified(self) -> None:
        """Note that every shard is what was written, so that it is not compared again when it is mapped."""
        if self.is_mapped_as_it_is:
            from .node_maps.node_map import note_seen

            note_seen(*self._whole_shard()[:2])

    def _whole_shard(self) -> tuple[Path, Shard, str]:
        assert self.place.local is not None
        (shard,) = self.manifest.shards
        return self.place.local / shard.file, shard, self.place.address(shard.file)


def _reopened(place: Place, expected: str) -> Folder:
    """Open a folder in another process. Raises DataError where another dataset lies there by now."""
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
