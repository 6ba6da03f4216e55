"""The last steps of a dataset that is written: shards of its pieces, what they measure, the manifest."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...data.spec import Spec
from ...data.storage.files import Place
from ...data.storage.fingerprint import BlockScan, scan_blocks
from ...data.storage.pieces import Piece, Shape, make_shards, workspace
from ...data.storage.rows import n_blocks
from ...data.storage.schema import infer_spec, merge_largest
from ...data.storage.shard_files import ShardFiles
from ...data.storage.shards import ShardRecord
from ...data.storage.steps import StepTable
from ...data.storage.working import Progress, Run, no_progress
from ...data.storage.writing import Draft, shard_rows
from ...data.uris import label

_BLOCKS_AT_ONCE = 16  # blocks of 65,536 rows that one task measures


@contextmanager
def space_in(draft: Draft) -> Generator[Place]:
    """A workspace in a draft, which is gone at the end."""
    space = workspace(draft.folder)
    try:
        yield space
    finally:
        space.delete_all()


def called(target: str | Path) -> str:
    return label(target) or "dataset"


def commit_pieces(
    draft: Draft,
    space: Place,
    pieces: Sequence[Piece | StepTable],
    shape: Shape,
    run: Run,
    *,
    progress: Progress = no_progress,
    spec: Spec | Callable[[list[ShardRecord]], Spec] | None = None,
    names: Mapping[str, Sequence[str]] | None = None,
    **about: Any,
) -> None:
    """Shards of pieces (or of tables in memory), what they measure, and the manifest.

    Args:
        draft: what is written.
        space: where the pieces lie; it is deleted.
        pieces: in order, with the same columns.
        shape: the shards that are asked for.
        run: calls the functions that write and measure.
        progress: shows how far the work is.
        spec: the spaces, or what finds them from the shards; None: inferred, without bounds.
        names: what entries of columns are called.
        about: for `Draft.commit`.
    """
    records = make_shards(pieces, draft.folder, run, shape, progress)
    found = spec(records) if callable(spec) else spec or infer_spec(records[0].kinds, merge_largest(r.largest for r in records))
    found = found.with_names(names or {})
    space.delete_all()
    draft.commit(records, spec=found, scans=measure(draft.folder, records, found, run, progress), **about)


def measure(folder: Place, records: list[ShardRecord], spec: Spec, run: Run, progress: Progress) -> list[BlockScan]:
    """Measure all blocks of the shards, in order."""
    rows = shard_rows(folder, records)
    n = n_blocks(rows.n)
    items = [_Blocks(rows, spec, k, min(k + _BLOCKS_AT_ONCE, n)) for k in range(0, n, _BLOCKS_AT_ONCE)]
    scans: list[BlockScan] = []
    with progress("measuring", n) as advance:
        for part in run(_scan, items) if len(items) > 1 else map(_scan, items):
            scans += part
            advance(len(part))
    return scans


@dataclass(frozen=True)
class _Blocks:
    rows: ShardFiles
    spec: Spec
    start: int
    stop: int


def _scan(blocks: _Blocks) -> list[BlockScan]:
    return scan_blocks(blocks.rows, blocks.spec, blocks.start, blocks.stop)
