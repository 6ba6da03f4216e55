"""What the workers of an import do: read a file into the spool, put a shard together, measure blocks of rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...data.errors import D3rayError, StorageError
from ...data.formats.registry import read
from ...data.spec import Environment, Spec
from ...data.storage.files import Place, storage_errors
from ...data.storage.manifest import Shard
from ...data.storage.scan import BlockScan, scan_blocks
from ...data.storage.schema import Kinds, kinds_of
from ...data.storage.shard_files import ShardFiles
from ...data.storage.shards import Compression, ShardRecord, plan_shards, write_shard
from ...data.storage.steps import StepTable, concat_steps
from ..cluster.session import quiet_ray_data, ray_session
from .sources import local_copy, size_and_sha256

SPOOL = ".d3ray-spool"
_MOST_TASKS = 1000

Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]


@dataclass(frozen=True)
class SourceFile:
    """One file of an import: where it came from and what was decided about it."""

    source: str
    index: int
    bytes: int
    sha256: str
    n_transitions: int
    n_episodes: int
    cuts: int
    notes: list[str]
    provenance: dict[str, Any]
    spec: Spec | None
    environment: Environment | None


@dataclass(frozen=True)
class Source:
    """A file or folder to read, and what it is called: the URI where it is a copy of one."""

    path: str
    index: int
    source: str


@dataclass(frozen=True)
class Spooled:
    """A file's steps as Arrow files in a folder of the spool."""

    file: SourceFile
    folder: str
    shards: tuple[Shard, ...]
    kinds: Kinds
    steps: np.ndarray
    terminated: np.ndarray
    final_recorded: np.ndarray

    def read(self, start: int, stop: int) -> StepTable:
        """Episodes `start` … `stop - 1` of the file."""
        rows = ShardFiles(Place(self.folder), self.shards, self.kinds, compressed=False)
        ends = np.cumsum(self.steps + 1)
        first, last = int(ends[start - 1]) if start else 0, int(ends[stop - 1])
        columns = {name: rows.read(name, first, last) for name in self.kinds}
        steps = self.steps[start:stop]
        return StepTable(
            columns=columns,
            first_row=np.cumsum(steps + 1) - (steps + 1),
            steps=steps,
            terminated=self.terminated[start:stop],
            final_recorded=self.final_recorded[start:stop],
        )


@dataclass(frozen=True)
class ShardItem:
    folder: Place
    index: int
    of: int
    first_episode: int
    parts: list[tuple[StepTable | Spooled, int, int]]
    compression: Compression


@dataclass(frozen=True)
class ScanItem:
    rows: ShardFiles
    spec: Spec
    start: int
    stop: int


@dataclass(frozen=True)
class Scanned:
    start: int
    scans: list[BlockScan]


def import_file(item: Source, *, format: str | None, spec: Spec | None, options: Mapping[str, Any]) -> tuple[SourceFile, StepTable]:
    with local_copy(item.path) as path, storage_errors("read", item.source):
        try:
            imported = read(path, format, spec=spec, **options)
        except D3rayError as error:  # a copy's name means nothing to the one who reads it
            raise type(error)(str(error).replace(str(path), item.source)) from None
        steps = imported.steps
        n_bytes, sha256 = size_and_sha256(path)
        file = SourceFile(
            source=item.source,
            index=item.index,
            bytes=n_bytes,
            sha256=sha256,
            n_transitions=steps.n_transitions,
            n_episodes=steps.n_episodes,
            cuts=steps.cuts,
            notes=[note.replace(str(path), item.source) for note in imported.notes],
            provenance=imported.provenance,
            spec=imported.spec,
            environment=imported.environment,
        )
    return file, steps


def spool_file(item: Source, *, reader: Callable[[Source], tuple[SourceFile, StepTable]], spool: str) -> Spooled:
    file, table = reader(item)
    folder, kinds = f"{spool}/{item.index:06d}", kinds_of(table.columns)
    plan = plan_shards(table.steps + 1, kinds)
    records = [write_shard(folder, k, len(plan), table.slice(*part), first_episode=part[0]) for k, part in enumerate(plan)]
    shards = tuple(record.shard for record in records)
    return Spooled(file, folder, shards, kinds, table.steps, table.terminated, table.final_recorded)


def write_planned_shard(item: ShardItem) -> ShardRecord:
    tables = [p.read(a, b) if isinstance(p, Spooled) else p.slice(a, b) for p, a, b in item.parts]
    table = tables[0] if len(tables) == 1 else concat_steps(tables)
    return write_shard(item.folder, item.index, item.of, table, first_episode=item.first_episode, compression=item.compression)


def scan(item: ScanItem) -> Scanned:
    return Scanned(item.start, scan_blocks(item.rows, item.spec, item.start, item.stop))


def in_process(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    return map(function, items)


@contextmanager
def ray_workers(*, local: bool) -> Generator[Run]:
    """Runs functions in Ray's workers, results as they come.

    Args:
        local: files lie on this machine, so only its workers can be used.
    """
    import ray
    import ray.data
    from ray.exceptions import OutOfMemoryError, WorkerCrashedError

    def run(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        blocks = min(len(items), _MOST_TASKS)
        node = {"ray.io/node-id": ray.get_runtime_context().get_node_id()} if local else None
        found = ray.data.from_items(list(items), override_num_blocks=blocks).map(partial(_catch, function), label_selector=node)
        for row in found.iter_rows():
            if isinstance(row["result"], D3rayError):
                raise row["result"]
            yield row["result"]

    with ray_session():
        quiet_ray_data()
        try:
            yield run
        except (OutOfMemoryError, WorkerCrashedError):
            raise StorageError(
                "A worker was killed while it read or wrote, most likely for lack of memory: import fewer files at once."
            ) from None


def _catch(function: Callable[[Any], Any], row: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": function(row["item"])}
    except D3rayError as error:  # raised, it would come back as Ray's error with the worker's traceback
        return {"result": error}


def delete_spool(place: Place, spooled: Sequence[Spooled]) -> None:
    if place.local is not None:
        shutil.rmtree(place.local / SPOOL, ignore_errors=True)
        return
    for piece in spooled:
        Place(piece.folder).delete(shard.file for shard in piece.shards)
