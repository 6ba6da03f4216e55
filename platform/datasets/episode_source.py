"""Readers of whole episodes as a source of Ray Data: a row of its blocks is an episode, so that nothing on the way can cut one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from ...data.dataset import Dataset
from ...data.errors import DataError
from ...data.storage.packed import pack
from ...data.storage.schema import Kinds, kinds_of, say_kind
from ...data.storage.shards import plan_shards
from ...data.storage.steps import StepTable

PART_BYTES = 1 << 27  # of a part, and of those that one task reads: it holds about three times as much


@dataclass(frozen=True)
class Part:
    """What one call reads: a file, a stretch of one, a range of a dataset's episodes. Picklable.

    Attributes:
        name: what a message calls it.
        read: gives the episodes, and what else there is to say of them.
        bytes: about as many; tasks are measured by it.
    """

    name: str
    read: Callable[[], tuple[StepTable, str]]
    bytes: int


class EpisodeSource(Datasource):
    """Parts in order, some at a time in each task; see `packed.pack` for the rows.

    Args:
        parts: what to read; the column `episode/part` says of which one a row is.
        at_least: tasks, where there are parts enough.
    """

    def __init__(self, parts: Sequence[Part], at_least: int = 1) -> None:
        super().__init__()
        self._parts = list(enumerate(parts))
        self.n_tasks = len(self._grouped(at_least))

    def get_name(self) -> str:
        """What Ray Data calls the reading."""
        return "Episodes"

    def estimate_inmemory_data_size(self) -> int:
        """Bytes of all parts."""
        return sum(part.bytes for _, part in self._parts)

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:
        """Tasks of consecutive parts, of about 128 MiB or less where there are parts enough for `parallelism`."""
        del data_context
        tasks: list[ReadTask] = []
        for mine in self._grouped(parallelism):
            size = sum(part.bytes for _, part in mine)
            metadata = BlockMetadata(num_rows=None, size_bytes=size, input_files=None, exec_stats=None)
            tasks.append(ReadTask(partial(_read, mine), metadata, per_task_row_limit=per_task_row_limit))
        return tasks

    def _grouped(self, at_least: int) -> list[list[tuple[int, Part]]]:
        each = max(1, min(PART_BYTES, -(-self.estimate_inmemory_data_size() // max(at_least, 1))))
        group = (np.cumsum([part.bytes for _, part in self._parts]) - 1) // each
        return [[self._parts[i] for i in np.flatnonzero(group == k).tolist()] for k in np.unique(group).tolist()]


def _read(parts: list[tuple[int, Part]]) -> Iterator[Any]:
    first: Kinds | None = None
    for k, part in parts:
        table, told = part.read()
        first = first or kinds_of(table.columns)
        check_same_columns([parts[0][1].name, part.name], [first, kinds_of(table.columns)])  # Ray would put them in one block
        yield pack(table, part=k, told=told)


def check_same_columns(names: Sequence[str], kinds: Sequence[Kinds]) -> None:
    """Raises DataError, naming two parts whose columns differ."""
    for part, other in zip(names, kinds, strict=True):
        for name in sorted(kinds[0].keys() | other.keys()):
            if kinds[0].get(name) != other.get(name):
                raise DataError(
                    f"{part} is not like {names[0]}: its column {name!r} is {say_kind(other.get(name))}, "
                    f"there it is {say_kind(kinds[0].get(name))}."
                )


def parts_of(dataset: Dataset) -> list[Part]:
    """Ranges of a dataset's episodes of about 128 MiB. Those in memory travel with them."""
    tables, kinds = dataset.tables(), dataset.kinds
    row_bytes = sum(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize for dtype, shape in kinds.values())
    ends = np.cumsum(dataset.episodes.steps + 1)
    ranges = plan_shards(dataset.episodes.steps + 1, kinds, max_rows=max(1, PART_BYTES // row_bytes))
    rows = np.diff(ends[[stop - 1 for _, stop in ranges]], prepend=0)
    return [Part(dataset.name, partial(_range, tables, *pair), int(n) * row_bytes) for pair, n in zip(ranges, rows, strict=True)]


def _range(tables: Any, start: int, stop: int) -> tuple[StepTable, str]:
    return tables.read(start, stop), ""
