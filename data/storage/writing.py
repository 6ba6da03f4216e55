"""Writing a dataset folder: workers write shards into a draft, and one process commits it, `dataset.json` last."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..errors import D3rayError, DataError, StorageError
from ..spec import Environment, Spec
from .claims import is_alive, new_claim, remove_dead
from .episode_table import EpisodeTable
from .files import PIECES, Place, storage_errors, sync_folder
from .fingerprint import BlockScan, Summary, scan_blocks, summarise_scans
from .manifest import FILE, MANIFEST, Column, Manifest, write_manifest
from .schema import check_spec, infer_spec, merge_largest, with_masks
from .shard_files import ShardFiles
from .shards import ShardRecord, shard_name, write_episodes

_OURS = re.compile(rf"dataset\.json|{FILE}|\.d3ray-.*")


def commit(
    folder: str | Path | Place,
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
    """Make a dataset of shards that lie in `folder`: the table of episodes is written, then the manifest.

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

    Raises DataError where shards do not follow on each other or differ in columns, StorageError where a file is gone already.
    """
    rows = shard_rows(folder, records)
    place = rows.place
    records = sorted(records, key=lambda record: record.shard.file)
    largest = merge_largest(r.largest for r in records)
    spec = with_masks(rows.kinds, spec) if spec else infer_spec(rows.kinds, largest)
    check_spec(rows.kinds, largest, spec)
    episodes = EpisodeTable.end_to_end(records)
    if summary is None:
        summary = summarise_scans(scans or scan_blocks(rows, spec), episodes, rows.kinds)
    manifest = Manifest(
        name=name,
        environment=environment,
        spec=spec,
        n_transitions=episodes.n_transitions,
        n_episodes=len(episodes),
        n_rows=rows.n,
        cuts=sum(r.cuts for r in records) if cuts is None else cuts,
        columns=tuple(Column(name=n, dtype=d, shape=s, digest=summary.digests[n]) for n, (d, s) in rows.kinds.items()),
        shards=rows.shards,
        episodes=write_episodes(place, episodes),
        compression=records[0].compression,
        statistics=summary.statistics,
        provenance=dict(provenance or {}),
        fingerprint=summary.fingerprint,
    )
    for file, size in place.sizes(file.file for file in (manifest.episodes, *manifest.shards)).items():
        if size is None:
            raise StorageError(f"{place.address(file)} was deleted, most likely by another write to the same place.")
    write_manifest(place, manifest)
    return manifest


def shard_rows(folder: str | Path | Place, records: Sequence[ShardRecord]) -> ShardFiles:
    """Open the rows of shards that are not committed yet, for workers that scan blocks of them. Raises DataError."""
    place = folder if isinstance(folder, Place) else Place(folder)
    ordered = sorted(records, key=lambda record: record.shard.file)
    if not ordered:
        raise DataError(f"There is nothing to commit in {folder}: no shard was written.")
    episode = 0
    for k, record in enumerate(ordered):
        wanted = f"{shard_name(k, len(ordered))}.arrow"
        if (record.index, record.of) != (k, len(ordered)):
            raise DataError(f"{folder} has the shard {record.shard.file} where {wanted} is due.")
        if record.first_episode != episode:
            raise DataError(f"{place.address(wanted)} begins with episode {record.first_episode}; {episode} is due.")
        if (record.kinds, record.compression) != (ordered[0].kinds, ordered[0].compression):
            raise DataError(f"{place.address(wanted)} has other columns or another compression than {ordered[0].shard.file}.")
        episode += record.shard.episodes
    return ShardFiles(
        place, tuple(record.shard for record in ordered), ordered[0].kinds, compressed=ordered[0].compression is not None
    )


class Draft:
    """A dataset in the making, as a context: what is not committed when it ends leaves nothing behind, and what was there whole.

    A local one is written to a folder beside its target. Where that is new the folder is renamed; else, and behind a URI, files
    have names of their own, which lie beside the old ones until `dataset.json` is replaced, last and at once. Whatever moment a
    writer is killed at, the old dataset or the new one is there. Workers write into `folder`.

    Who writes to a place that others may write to says so there by an empty file. So what nobody has committed and nobody writes
    any more can be told, and deleted.

    Args:
        target: folder or URI.
        overwrite: replace the dataset that is there.

    Raises:
        StorageError: there is a dataset already, or something that is not one, or the place cannot be written.
    """

    folder: Place

    def __init__(self, target: str | Path, *, overwrite: bool = False) -> None:
        self.target = Place(target)
        self.overwrite = overwrite

    def __enter__(self) -> Self:
        existing = self.target.names()
        if self.target.local is not None and self.target.local.is_file():
            raise StorageError(f"{self.target} is a file; a dataset is a folder.")
        if foreign := [name for name in existing if not _OURS.fullmatch(name)]:
            raise StorageError(f"{self.target} holds {foreign[0]!r} and is no dataset; give a folder that is new or empty.")
        if MANIFEST in existing and not self.overwrite:
            raise StorageError(f"{self.target} is a dataset already; say overwrite=true to replace it.")
        self._replaced = self.target.read(MANIFEST)
        claim = new_claim()
        self._claim = "" if self.target.local is not None and not existing else f".d3ray-{claim}"
        if self._claim:
            self.target.make()
            self.target.touch(self._claim)
            _sweep(self.target)
        self.folder = Place(self.target.name, mark=claim[-8:] if self._claim else "")
        if self.target.local is not None:
            remove_dead(self.target.local.parent)
            self.folder = Place(self.target.local.with_name(f".{self.target.local.name}.{claim}"), self.folder.mark)
            self.folder.make()
        return self

    def commit(self, records: Sequence[ShardRecord], **about: Any) -> Manifest:
        """Commit, and put the draft in its place. Raises StorageError where another did so meanwhile."""
        if self.target.read(MANIFEST) != self._replaced:
            raise StorageError(f"{self.target} was written by another in the meantime; what is there now is left as it is.")
        manifest = commit(self.folder, records, **about)
        if self.folder.local is not None:
            with storage_errors("written", self.target):
                _move(self.folder.local, Path(self.target.name), manifest if self._claim else None)
        return manifest

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.folder.local is not None:
            shutil.rmtree(self.folder.local, ignore_errors=True)
        if self._claim:
            with suppress(StorageError):  # what cannot be deleted now goes with the next write, and what failed says more
                self.target.delete([self._claim])
                _sweep(self.target)
        if isinstance(error, D3rayError) and str(self.folder) in str(error):  # the draft is nothing that a user has heard of
            raise type(error)(str(error).replace(str(self.folder), self.target.name)) from error


def _move(draft: Path, target: Path, manifest: Manifest | None) -> None:
    """Rename a draft to its target; with a manifest file by file to where a dataset may be, `dataset.json` last."""
    sync_folder(draft)
    if manifest is None:
        draft.rename(target)  # fails where another process has put a dataset there in the meantime
    else:
        for file in (manifest.episodes, *manifest.shards):
            (draft / file.file).rename(target / file.file)
        sync_folder(target)
        (draft / MANIFEST).replace(target / MANIFEST)
        sync_folder(target)
    sync_folder(target.parent)


def _sweep(place: Place) -> None:
    """Deletes files that no dataset consists of and nobody writes.

    A writer's claim is there before its files and goes after its manifest has come. So, in this order: files, claims, manifest.
    """
    files = [name for name in place.names() if re.fullmatch(FILE, name)]
    claims = {name: is_alive(name) for name in place.names() if name.startswith(".d3ray-draft-")}
    manifest = (place.read(MANIFEST) or b"").decode(errors="replace")  # its files' names are told of a damaged one too
    kept = {match.group() for match in re.finditer(FILE, manifest)}
    written = tuple(f"-{name[-8:]}.arrow" for name, alive in claims.items() if alive)
    place.delete(name for name, alive in claims.items() if not alive)
    place.delete(name for name in files if name not in kept and not name.endswith(written))
    writing = tuple(name[-8:] for name, alive in claims.items() if alive)
    for name in place.names():
        if name.startswith(PIECES) and not name.endswith(writing):
            Place(place.address(name)).delete_all()
