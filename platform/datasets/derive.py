"""Writes a derived dataset to a folder: in this process, or where it is large shard by shard in Ray's workers.

A worker reads the rows of its shard from where the parents lie (their shards one after the other, each verified; or, where episodes
are in another order than that, the node map), works out what is derived, and writes. The dataset is the same either way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...data.dataset import Dataset
from ...data.spec import Spec
from ...data.storage.episode_table import StepTables
from ...data.storage.files import Place
from ...data.storage.fingerprint import BlockScan
from ...data.storage.shards import Compression, ShardRecord, plan_shards, write_shard
from ...data.storage.working import Progress, Run, in_process, no_progress
from ...data.storage.writing import Draft
from ...data.uris import is_remote
from ..cluster.session import node_count
from .committing import measure
from .workers import in_tasks, ray_workers

_SMALL = 1 << 28  # bytes that are written in this process; to start a Ray takes longer


def write_dataset(
    dataset: Dataset,
    target: str | Path,
    *,
    name: str | None = None,
    n_shards: int | None = None,
    max_rows_per_shard: int | None = None,
    compression: Compression = None,
    overwrite: bool = False,
    parallel: bool | None = None,
    progress: Progress = no_progress,
) -> Dataset:
    """Writes a dataset, most often a lazy one, as a folder. One shard a worker is in memory.

    Args:
        dataset: which.
        target: the folder, new or empty, or a URI.
        name: its name there; None: the dataset's own.
        n_shards: as many Arrow files; None: as few as about 1 GiB each makes.
        max_rows_per_shard: rows of a file.
        compression: "zstd", or None for files that are mapped as they are.
        overwrite: replace the dataset that is at the target.
        parallel: write shards side by side in Ray's workers, to which what lies in memory is copied. None: where there are several
            shards of more than 256 MiB in all or several nodes, and all that it is derived from lies in folders.
        progress: shows how far the work is.

    Returns:
        The dataset, opened where it was written.

    Raises:
        DataError: a parent is damaged, or what is derived cannot be worked out.
        StorageError: the target exists or cannot be written, the disk is full. What was there is left as it was.
    """
    plan = plan_shards(dataset.episodes.steps + 1, dataset.kinds, n_shards=n_shards, max_rows=max_rows_per_shard)
    places = [target, *(folder.place.name for folder in dataset.folders)]
    with Draft(target, overwrite=overwrite) as draft:
        write = _Write(dataset.tables(), draft.folder, len(plan), compression)
        items = [_Shard(k, start, stop) for k, (start, stop) in enumerate(plan)]
        if parallel if parallel is not None else _is_parallel(dataset, len(plan)):
            with ray_workers():
                run = in_tasks(local=not all(map(is_remote, places)))
                records, scans = _write(write, run, items, dataset.spec, progress)
        else:
            records, scans = _write(write, in_process, items, dataset.spec, progress)
        draft.commit(
            records,
            name=name or dataset.name,
            spec=dataset.spec,
            environment=dataset.environment,
            provenance=dataset.provenance,
            scans=scans,
            cuts=dataset.cuts,
        )
    return Dataset.open(target)


def _is_parallel(dataset: Dataset, n_shards: int) -> bool:
    if dataset.source.in_memory or n_shards == 1:
        return False
    row = sum(np.dtype(dtype).itemsize * math.prod(shape) for dtype, shape in dataset.kinds.values())
    return dataset.n_rows * row > _SMALL or node_count() > 1


@dataclass(frozen=True)
class _Shard:
    index: int
    start: int
    stop: int


@dataclass(frozen=True)
class _Write:
    """Task of a worker; pickled once for all of its shards."""

    tables: StepTables
    folder: Place
    of: int
    compression: Compression

    def __call__(self, shard: _Shard) -> ShardRecord:
        table = self.tables.read(shard.start, shard.stop)
        return write_shard(self.folder, shard.index, self.of, table, first_episode=shard.start, compression=self.compression)


def _write(
    write: _Write, run: Run, items: list[_Shard], spec: Spec, progress: Progress
) -> tuple[list[ShardRecord], list[BlockScan]]:
    records: list[ShardRecord] = []
    with progress("writing shards", len(items)) as advance:
        for record in run(write, items):
            records.append(record)
            advance()
    return records, measure(write.folder, records, spec, run, progress)
