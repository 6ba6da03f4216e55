"""The shards of a dataset folder as a source of Ray Data, which has no reader of Arrow IPC files itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from ..data.dataset import Dataset
from ..data.episodes import Episodes
from ..data.folder import Folder
from ..data.spec import is_shown
from ..data.storage.episode_table import StepTables
from ..data.storage.flat import RECORDED, transitions
from ..data.storage.schema import Kinds
from ..data.storage.shard_files import ShardFiles
from ..data.storage.shards import to_arrow

_BLOCK_BYTES = 1 << 26


@dataclass(frozen=True)
class Part:
    """Whole episodes of one shard."""

    shard: int
    first_row: np.ndarray  # [E] within the shard
    steps: np.ndarray  # [E]
    episode: np.ndarray  # [E] their numbers in the dataset that is read
    final_recorded: np.ndarray  # [E]

    @property
    def n_transitions(self) -> int:
        return int(self.steps.sum())


class _Transitions(Datasource):
    """Transitions of so many episodes' steps, as Ray Data plans to read them."""

    def __init__(self, kinds: Kinds, steps: np.ndarray) -> None:
        super().__init__()
        self._kinds, self._steps = kinds, steps

    def get_name(self) -> str:
        return "Transitions"

    def estimate_inmemory_data_size(self) -> int:
        return row_bytes(self._kinds) * int(self._steps.sum())

    @property
    def n_blocks(self) -> int:
        """Tasks that are worth it: one for each 64 MiB."""
        return -(-self.estimate_inmemory_data_size() // _BLOCK_BYTES)

    def _task(self, read: Callable[[], Iterator[Any]], n: int, limit: int | None, file: str | None = None) -> ReadTask:
        files = (file,) if file else None
        metadata = BlockMetadata(num_rows=n, size_bytes=n * row_bytes(self._kinds), input_files=files, exec_stats=None)
        return ReadTask(read, metadata, per_task_row_limit=limit)


class TransitionSource(_Transitions):
    """Transitions of a dataset folder: one row a step, closing rows folded into `next_observation`.

    Columns are `episode`, `step`, those of the dataset but `closing`, `next_observation` (or one `next_observation/KEY` each),
    `next_action_mask` where there are masks, and `next_recorded`, which is false where an episode's final observation is missing:
    there `next_observation` repeats the last one.

    Args:
        folder: the open folder.
        episodes: of it, all or some, in the order of their rows.
    """

    def __init__(self, folder: Folder, episodes: Episodes) -> None:
        super().__init__((rows := folder.shards()).kinds, episodes.steps)
        self._rows, self._parts = rows, list(parts_of(rows.first_row, episodes))

    @property
    def n_blocks(self) -> int:
        """Tasks that are worth it: one a shard, and one for each 64 MiB."""
        return max(len(self._parts), super().n_blocks)

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:
        """One task a shard, or more where shards are fewer than `parallelism` and have several episodes."""
        each = max(1, -(-int(self._steps.sum()) // max(parallelism, 1)))
        pieces = [piece for whole in self._parts for piece in _cut(whole, each)]
        files = [self._rows.shards[piece.shard].file for piece in pieces]
        reads = [partial(_read, self._rows, piece) for piece in pieces]
        return [
            self._task(read, piece.n_transitions, per_task_row_limit, file)
            for read, piece, file in zip(reads, pieces, files, strict=True)
        ]


class DerivedSource(_Transitions):
    """Transitions of a dataset that is worked out of folders, as `TransitionSource` has them; a task works out its own episodes."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset.kinds, dataset.episodes.steps)
        self._tables = dataset.tables()

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:
        """Make as many tasks as are asked for, of about as many transitions each, if there are episodes enough."""
        ends = np.cumsum(self._steps)
        group = (ends - self._steps) // max(1, -(-int(ends[-1]) // max(parallelism, 1)))
        cuts = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(ends)]
        return [
            self._task(
                partial(_read_derived, self._tables, self._kinds, *pair), int(self._steps[slice(*pair)].sum()), per_task_row_limit
            )
            for pair in pairwise(cuts)
        ]


def _read_derived(tables: StepTables, kinds: Kinds, start: int, stop: int) -> Iterator[Any]:
    table = tables.read(start, stop)
    part = Part(0, table.first_row, table.steps, np.arange(start, stop), table.final_recorded)
    yield from transition_tables(table.columns, part, kinds)


def parts_of(first_row: np.ndarray, episodes: Episodes) -> Iterator[Part]:
    """The episodes of each shard that has some; shard k begins with row `first_row[k]`."""
    shard = np.searchsorted(first_row, episodes.first_row, side="right") - 1
    for k in np.unique(shard).tolist():
        mine = np.flatnonzero(shard == k)
        yield Part(k, episodes.first_row[mine] - first_row[k], episodes.steps[mine], mine, episodes.final_recorded[mine])


def transition_tables(columns: Any, part: Part, kinds: Kinds) -> Iterator[Any]:
    """Arrow tables of about 64 MiB with the transitions of some episodes, whose rows lie in `columns`."""
    each = max(1, _BLOCK_BYTES // row_bytes(kinds))
    for piece in _cut(part, each):
        rows = np.repeat(piece.first_row - (np.cumsum(piece.steps) - piece.steps), piece.steps) + np.arange(piece.n_transitions)
        step = rows - np.repeat(piece.first_row, piece.steps)
        recorded = np.ones(len(rows), bool)
        recorded[np.cumsum(piece.steps) - 1] = piece.final_recorded
        out = {"episode": np.repeat(piece.episode, piece.steps), "step": step.astype(np.int32)}
        out |= {**transitions(columns, kinds, rows), RECORDED: recorded}
        yield pa.table({name: to_arrow(column) for name, column in out.items()})


def row_bytes(kinds: Kinds) -> int:
    """Bytes of one transition, its next observation included."""
    sizes = {name: int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize for name, (dtype, shape) in kinds.items()}
    return 13 + sum(size * (1 + is_shown(name)) for name, size in sizes.items())


def _read(rows: ShardFiles, part: Part) -> Iterator[Any]:
    yield from transition_tables(rows.columns(part.shard), part, rows.kinds)


def _cut(part: Part, each: int) -> Iterator[Part]:
    """Pieces of whole episodes with `each` transitions or, by the length of an episode, more."""
    group = (np.cumsum(part.steps) - part.steps) // each
    for k in np.unique(group).tolist():
        mine = group == k
        yield Part(part.shard, part.first_row[mine], part.steps[mine], part.episode[mine], part.final_recorded[mine])
