"""Readers of whole episodes as a source of Ray Data: a row of its blocks is an episode, so that nothing on the way can cut one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from ...data.storage.packed import pack
from ...data.storage.schema import Kinds, kinds_of
from .parts import PART_BYTES, Part, check_same_columns


class EpisodeSource(Datasource):
    """Parts in order, some at a time in each of `at_least` tasks; see `packed.pack` for the rows.

    The column `episode/part` says of which part a row is.
    """

    def __init__(self, parts: Sequence[Part], at_least: int = 1) -> None:
        super().__init__()
        self._parts = list(enumerate(parts))
        self.n_tasks = len(self._grouped(at_least))

    def get_name(self) -> str:
        return "Episodes"

    def estimate_inmemory_data_size(self) -> int:
        return sum(part.bytes for _, part in self._parts)

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:
        """Tasks of consecutive parts, of about 128 MiB or less where there are parts enough for `parallelism`."""
        del data_context
        tasks: list[ReadTask] = []
        for mine in self._grouped(parallelism):
            size = sum(part.bytes for _, part in mine)
            metadata = BlockMetadata(num_rows=None, size_bytes=size, input_files=None, exec_stats=None)
            tasks.append(ReadTask(_Reader(mine), metadata, per_task_row_limit=per_task_row_limit))
        return tasks

    def _grouped(self, at_least: int) -> list[list[tuple[int, Part]]]:
        each = max(1, min(PART_BYTES, -(-self.estimate_inmemory_data_size() // max(at_least, 1))))
        group = (np.cumsum([part.bytes for _, part in self._parts]) - 1) // each
        return [[self._parts[i] for i in np.flatnonzero(group == k).tolist()] for k in np.unique(group).tolist()]


class _Reader:
    """Reads some parts, a block each."""

    __name__ = "read_episodes"  # by which Ray warns of a task that is large; parts may hold flags and places of many episodes

    def __init__(self, parts: list[tuple[int, Part]]) -> None:
        self._parts = parts

    def __call__(self) -> Iterator[Any]:
        return _read(self._parts)


def _read(parts: list[tuple[int, Part]]) -> Iterator[Any]:
    first: Kinds | None = None
    for k, part in parts:
        table, told = part.read()
        first = first or kinds_of(table.columns)
        check_same_columns([parts[0][1].name, part.name], [first, kinds_of(table.columns)])  # Ray would put them in one block
        yield pack(table, part=k, told=told)
