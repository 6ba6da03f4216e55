"""Writing a dataset folder: workers write shards into a draft, and one process commits it, `dataset.json` last."""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from ..errors import D3rayError, DataError, StorageError
from ..spec import Environment, Spec
from .episode_table import EpisodeTable
from .files import Place, storage_errors, sync_folder
from .manifest import FILE, MANIFEST, Column, Manifest, write_manifest
from .scan import BlockScan, Summary, scan_blocks, summarise_scans
from .schema import check_spec, infer_spec, merge_largest, with_masks
from .shard_files import ShardFiles
from .shards import ShardRecord, shard_name, write_episodes

_OURS = re.compile(rf"dataset\.json|{FILE}|\.d3ray-.*")


def commit(
    folder: str | Path,
    records: Sequence[ShardRecord],
    *,
    name: str,
    spec: Spec | None = None,
    environment: Environment | None = None,
    provenance: Mapping[str, Any] | None = None,
    scans: Sequence[BlockScan] | None = None,
    summary: Summary | None = None,
    cuts: int | None = None,
) -> Manifest:
    """Makes a dataset of shards that lie in `folder`: writes the table of episodes, then the manifest.

    Args:
        folder: where the shards were written to.
        records: what `write_shard` returned, in any order, one for each of them.
        name: the dataset's name.
        spec: None: inferred, without bounds.
        environment: where the steps were taken.
        provenance: JSON-able notes on how it was made.
        scans: of all blocks of `shard_rows(folder, records)` in order, where workers have scanned them; None: scanned here.
        summary: instead of `scans`, where digests and statistics are known already.
        cuts: None: the sum of the records'.

    Raises:
        DataError: shards do not follow on each other, differ in their columns, or are not of the given spec.
        StorageError: the place cannot be written, or a file of it is gone already.
    """
    place = Place(folder)
    rows = shard_rows(place, records)
    records = sorted(records, key=lambda record: record.shard.file)
    largest = merge_largest(r.largest for r in records)
    spec = with_masks(rows.kinds, spec) if spec else infer_spec(rows.kinds, largest)
    check_spec(rows.kinds, largest, spec)
    arrays = {
        "first_row": np.concatenate([r.first_row + o for r, o in zip(records, rows.first_row, strict=False)]),
        "steps": np.concatenate([r.steps for r in records]),
        "terminated": np.concatenate([r.terminated for r in records]),
        "final_recorded": np.concatenate([r.final_recorded for r in records]),
        "return": np.concatenate([r.returns for r in records]),
    }
    if summary is None:
        episodes = EpisodeTable(*arrays.values())
        summary = summarise_scans(scans or scan_blocks(rows, spec), episodes, rows.kinds)
    manifest = Manifest(
        name=name,
        environment=environment,
        spec=spec,
        n_transitions=int(arrays["steps"].sum()),
        n_episodes=len(arrays["steps"]),
        n_rows=rows.n,
        cuts=sum(r.cuts for r in records) if cuts is None else cuts,
        columns=tuple(Column(name=n, dtype=d, shape=s, digest=summary.digests[n]) for n, (d, s) in rows.kinds.items()),
        shards=rows.shards,
        episodes=write_episodes(place, arrays),
        compression=records[0].compression,
        statistics=summary.statistics,
        provenance=dict(provenance or {}),
        fingerprint=summary.fingerprint,
    )
    for file, size in place.sizes(file.file for file in (manifest.episodes, *manifest.shards)).items():
        if size is None:
            raise StorageError(f"{place}/{file} was deleted, most likely by another write to the same place.")
    write_manifest(place, manifest)
    return manifest


def shard_rows(folder: str | Path | Place, records: Sequence[ShardRecord]) -> ShardFiles:
    """The logical rows of shards that are not committed yet, for workers that scan blocks of them. Picklable.

    Raises:
        DataError: shards do not follow on each other, or differ in their columns.
    """
    ordered = sorted(records, key=lambda record: record.shard.file)
    if not ordered:
        raise DataError(f"There is nothing to commit in {folder}: no shard was written.")
    episode = 0
    for k, record in enumerate(ordered):
        wanted = f"{shard_name(k, len(ordered))}.arrow"
        if (record.index, record.of) != (k, len(ordered)):
            raise DataError(f"{folder} has the shard {record.shard.file} where {wanted} is due.")
        if record.first_episode != episode:
            raise DataError(f"{folder}/{wanted} begins with episode {record.first_episode}; {episode} is due.")
        if (record.kinds, record.compression) != (ordered[0].kinds, ordered[0].compression):
            raise DataError(f"{folder}/{wanted} has other columns or another compression than {ordered[0].shard.file}.")
        episode += record.shard.episodes
    place = folder if isinstance(folder, Place) else Place(folder)
    return ShardFiles(
        place, tuple(record.shard for record in ordered), ordered[0].kinds, compressed=ordered[0].compression is not None
    )


class Draft:
    """A dataset in the making, as a context: what is not committed when it ends leaves nothing behind, and what was there whole.

    A local one is written to a folder beside its target and renamed. Elsewhere its files go to their place at once, under new
    names, and `dataset.json` last: until then the dataset that is replaced is whole, and then its files are deleted. Workers
    write into `folder`.

    Args:
        target: folder or URI.
        overwrite: replace the dataset that is there.

    Raises:
        StorageError: there is a dataset already, or something that is not one, or the place cannot be written.
    """

    def __init__(self, target: str | Path, *, overwrite: bool = False) -> None:
        self.target = Place(target)
        self.overwrite = overwrite
        self.folder = ""
        self._committed = False

    def __enter__(self) -> Self:
        self._existing = self.target.names()
        if self.target.local is not None and self.target.local.is_file():
            raise StorageError(f"{self.target} is a file; a dataset is a folder.")
        if foreign := [name for name in self._existing if not _OURS.fullmatch(name)]:
            raise StorageError(f"{self.target} holds {foreign[0]!r} and is no dataset; give a folder that is new or empty.")
        if MANIFEST in self._existing and not self.overwrite:
            raise StorageError(f"{self.target} is a dataset already; say overwrite=true to replace it.")
        if self.target.local is None:
            self._replaced = self.target.read(MANIFEST)
            self.target.make()
            self.folder = self.target.name
        else:
            _clear_litter(self.target.local)
            draft = Place(_beside(self.target.local))
            draft.make()
            self.folder = draft.name
        return self

    def commit(self, records: Sequence[ShardRecord], **about: Any) -> Manifest:
        """`commit` of this module, and then the draft takes its place."""
        manifest = commit(self.folder, records, **about)
        if self.target.local is not None:
            with storage_errors("written", self.target):
                _replace(Path(self.folder), self.target.local, overwrite=self.overwrite)
        self._committed = True
        if self.target.local is None:
            self._sweep({file.file for file in (manifest.episodes, *manifest.shards)})
        return manifest

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._committed:
            return
        if self.target.local is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            with suppress(StorageError):  # what failed says more
                if self.target.read(MANIFEST) == self._replaced:  # else it came through, and its answer did not
                    self._sweep(self._existing)
        if isinstance(error, D3rayError) and self.folder in str(error):  # the draft is nothing that a user has heard of
            raise type(error)(str(error).replace(self.folder, self.target.name)) from error

    def _sweep(self, keep: Collection[str]) -> None:
        """Deletes shards and tables of episodes other than these. What cannot be deleted now goes with the next write."""
        with suppress(StorageError):
            self.target.delete(name for name in self.target.names() if re.fullmatch(FILE, name) and name not in keep)


def _beside(target: Path) -> Path:
    host = re.sub(r"\W", "-", socket.gethostname())
    return target.with_name(f".{target.name}.draft-{host}-{os.getpid()}-{secrets.token_hex(3)}")


def _clear_litter(target: Path) -> None:
    """Deletes drafts of the same target whose writers, on this machine, were killed."""
    host = re.sub(r"\W", "-", socket.gethostname())
    for draft in target.parent.glob(f".{glob.escape(target.name)}.draft-{host}-*"):
        process = draft.name.split("-")[-2]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(draft, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _replace(draft: Path, target: Path, *, overwrite: bool) -> None:
    """Renames `draft` to `target`. A dataset that is there is moved aside first, and back where that fails."""
    sync_folder(draft)
    aside = None
    if target.exists() and (overwrite or not (target / MANIFEST).exists()):
        aside = _beside(target)
        target.rename(aside)
    try:
        draft.rename(target)  # fails where another process has put a dataset there in the meantime
    except OSError:
        if aside is not None:
            aside.rename(target)
        raise
    sync_folder(target.parent)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)
