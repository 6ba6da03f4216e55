"""Pieces of a dataset: whole episodes that a worker writes before anybody knew what comes before them, and the shards made of them.

A piece has the bytes of a shard but for the column `episode`, which counts through the whole dataset. So on a local disk it becomes
a shard where it lies: the numbers are written into it, it is hashed and renamed. Where other shards are asked for, in an object
store, and where shards are compressed, they are put together of pieces and written anew.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from .episode_table import StepTables
from .files import PIECES, Place, sha256_of, storage_errors
from .manifest import File, Shard
from .rows import spans
from .schema import Kinds, kinds_of
from .shard_files import ShardFiles
from .shards import (
    Compression,
    ShardRecord,
    arrow_errors,
    file_name,
    plan_shards,
    shard_columns,
    shard_name,
    shard_record,
    write_columns,
    write_shard,
)
from .steps import StepTable, concat_steps
from .working import Progress, Run, no_progress

PIECE_BYTES = 1 << 28  # of a piece: who writes one holds about twice as much
_UNHASHED = "0" * 64


@dataclass(frozen=True)
class Piece:
    """Whole episodes in an Arrow file of their own, which is not hashed where it is local."""

    folder: str
    record: ShardRecord

    @property
    def kinds(self) -> Kinds:
        return self.record.kinds

    @property
    def steps(self) -> np.ndarray:
        return self.record.steps

    @property
    def terminated(self) -> np.ndarray:
        return self.record.terminated

    @property
    def final_recorded(self) -> np.ndarray:
        return self.record.final_recorded

    def slice(self, start: int, stop: int) -> StepTable:
        rows = ShardFiles(Place(self.folder), (self.record.shard,), self.kinds)
        return StepTables(rows, self.kinds, self.record).read(start, stop)


@dataclass(frozen=True)
class Shape:
    """The shards that are asked for.

    Attributes:
        n_shards: as many; None: each piece is one, or where they are put together each holds about 1 GiB.
        max_rows: of a shard.
        compression: "zstd" or None.
    """

    n_shards: int | None = None
    max_rows: int | None = None
    compression: Compression = None


def workspace(draft: Place) -> Place:
    """Return where the pieces of a draft lie: a folder in it that no other writer has, deleted when its shards are made."""
    return Place(draft.address(f"{PIECES}{draft.mark or secrets.token_hex(4)}"))


def write_piece(folder: str, table: StepTable, first_episode: int = 0) -> Piece:
    """Write episodes to a workspace, under a name that no other piece has: a second attempt disturbs nothing.

    `first_episode` is the number of the first one in the dataset, where it is known. Raises StorageError, which leaves nothing
    there.
    """
    place = Place(Place(folder).address(secrets.token_hex(8)))
    if place.local is None:
        return Piece(place.name, write_shard(place.name, 0, 1, table, first_episode=first_episode))
    place.make()
    path = place.local / f"{shard_name(0, 1)}.arrow"
    with storage_errors("written", path):
        try:
            write_columns(path, shard_columns(table, first_episode))
        except OSError:
            path.unlink(missing_ok=True)
            raise
        file = File(file=path.name, bytes=path.stat().st_size, sha256=_UNHASHED)
    return Piece(place.name, shard_record(table, file, 0, 1, first_episode))


def make_shards(
    pieces: Sequence[Piece | StepTable], folder: Place, run: Run, shape: Shape, progress: Progress = no_progress
) -> list[ShardRecord]:
    """Make the shards of a dataset in a draft's folder, for `commit`. Raises DataError where one would be too long for Arrow.

    `pieces` are all of it in order, with the same columns; tables are in the memory of who calls. `run` calls the functions that
    write, and `progress` shows how many shards are done.
    """
    items, function = _as_they_lie(pieces, folder), _adopt
    if items is None or shape != Shape():
        items, function = _put_together(pieces, folder, shape), _write
    records: list[ShardRecord] = []
    with progress("writing shards", len(items)) as advance:
        for record in run(function, items):
            records.append(record)
            advance()
    return records


@dataclass(frozen=True)
class _Item:
    """One shard."""

    folder: Place
    index: int
    of: int
    first_episode: int
    parts: list[tuple[Piece | StepTable, int, int]]
    compression: Compression = None


def _as_they_lie(pieces: Sequence[Piece | StepTable], folder: Place) -> list[_Item] | None:
    """Make each piece a shard; None where there are others than local ones."""
    if folder.local is None or not all(isinstance(piece, Piece) for piece in pieces):
        return None
    starts = np.cumsum([0, *(len(piece.steps) for piece in pieces)]).tolist()
    return [_Item(folder, k, len(pieces), starts[k], [(piece, 0, len(piece.steps))]) for k, piece in enumerate(pieces)]


def _put_together(pieces: Sequence[Piece | StepTable], folder: Place, shape: Shape) -> list[_Item]:
    first = pieces[0]
    kinds = first.kinds if isinstance(first, Piece) else kinds_of(first.columns)
    rows = np.concatenate([piece.steps for piece in pieces]) + 1
    starts = np.cumsum([0, *(len(piece.steps) for piece in pieces)])
    plan = plan_shards(rows, kinds, n_shards=shape.n_shards, max_rows=shape.max_rows)
    parts = [[(pieces[p], a, b) for p, a, b in spans(starts, *part)] for part in plan]
    return [_Item(folder, k, len(plan), plan[k][0], part, shape.compression) for k, part in enumerate(parts)]


def _write(item: _Item) -> ShardRecord:
    tables = [piece.slice(start, stop) for piece, start, stop in item.parts]
    table = tables[0] if len(tables) == 1 else concat_steps(tables)
    return write_shard(item.folder, item.index, item.of, table, first_episode=item.first_episode, compression=item.compression)


def _adopt(item: _Item) -> ShardRecord:
    """Make a piece a shard: the number of its first episode is written where it was counted from another one."""
    piece = item.parts[0][0]
    assert isinstance(piece, Piece)
    path, record = Path(piece.folder) / piece.record.shard.file, piece.record
    target = Path(item.folder.name) / file_name(item.folder, shard_name(item.index, item.of))
    with storage_errors("written", target):
        if record.first_episode != item.first_episode:
            _renumber(path, np.repeat(np.arange(item.first_episode, item.first_episode + len(record.steps)), record.steps + 1))
        size, sha256 = path.stat().st_size, sha256_of(path)
        path.replace(target)
    shard = Shard(file=target.name, bytes=size, sha256=sha256, rows=record.shard.rows, episodes=record.shard.episodes)
    return replace(record, shard=shard, index=item.index, of=item.of, first_episode=item.first_episode)


def _renumber(path: Path, episode: np.ndarray) -> None:
    """Write over the values of the column `episode`, which lie in one stretch of an uncompressed file."""
    with arrow_errors(str(path)), pa.memory_map(str(path)) as mapped:
        whole = mapped.read_buffer()
        values = pa.ipc.open_file(whole).get_batch(0).column("episode").buffers()[1]
        offset = values.address - whole.address
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(episode.astype("<i8").data)
        file.flush()
        os.fsync(file.fileno())
