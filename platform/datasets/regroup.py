"""Transitions that come out of Ray Data in any order as whole episodes: put apart by the workers, and read back by episode.

Ray's own shuffle by key does it too, in its object store; through the folder that is written anyway it takes half the time and a
bounded share of memory. Each task sorts what it gets and writes it to a file; then a part is a range of episodes, which lie in one
stretch of each file.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from ray.data import Datasink
from ray.data.block import BlockAccessor

from ...data.errors import DataError, did_you_mean
from ...data.storage.checks import one_column
from ...data.storage.files import Place
from ...data.storage.flat import called, put_in_order, steps_from_flat
from ...data.storage.manifest import Shard
from ...data.storage.schema import Kinds, check_alike, kinds_of
from ...data.storage.shard_files import ShardFiles
from ...data.storage.shards import plan_shards, shard_name, write_file
from ...data.storage.steps import StepTable
from .parts import PART_BYTES, Part

_LEAST = 1 << 26  # bytes of transitions that one task puts in order


@dataclass(frozen=True)
class Fragment:
    """Transitions that one task got, in a file, by episode and step. There `episode` is a number of `ids`."""

    folder: str
    shard: Shard
    kinds: Kinds
    ids: np.ndarray  # [I] numbers or text, rising
    count: np.ndarray  # [I] rows of each


class FragmentSink(Datasink[list[Fragment]]):
    """Writes transitions into a workspace; afterwards `fragments` says where they are.

    Args:
        folder: the workspace.
        columns: what d3ray's columns are called here.
    """

    def __init__(self, folder: str, columns: Columns | None) -> None:
        self.folder, self._columns = folder, columns
        self.fragments: list[Fragment] = []

    def get_name(self) -> str:
        return "Transitions"

    @property
    def min_bytes_per_write(self) -> int:
        """Small blocks come together, or there would be a file of each."""
        return _LEAST

    def write(self, blocks: Iterable[Any], ctx: Any) -> list[Fragment]:
        del ctx
        parts = [flat_arrays(block, self._columns) for block in blocks if BlockAccessor.for_block(block).num_rows()]
        return [write_fragment(self.folder, parts)] if parts else []

    def on_write_complete(self, write_result: Any) -> None:
        self.fragments = [fragment for task in write_result.write_returns for fragment in task]


Columns = Mapping[str, str | Sequence[str]]  # what columns are called, by d3ray's name; several are one each of an entry


def flat_arrays(block: Any, columns: Columns | None) -> dict[str, np.ndarray]:
    """The columns of a block of Ray Data, under d3ray's names.

    Raises:
        DataError: a column that is needed is not there, or holds something else than numbers of one shape.
    """
    accessor: Any = BlockAccessor.for_block(block)
    there: list[str] = accessor.column_names()
    entries = {ours: list(theirs) for ours, theirs in (columns or {}).items() if not isinstance(theirs, str)}
    taken = {name: ours for ours, theirs in entries.items() for name in theirs}
    for name, ours in taken.items():
        if name not in there:
            raise DataError(f"There is no column {name!r} to be an entry of {ours!r}{did_you_mean(name, there)}")
    whole = {ours: theirs for ours, theirs in (columns or {}).items() if isinstance(theirs, str)}
    found = called([*(name for name in there if name not in taken), *entries], whole)
    arrays = accessor.to_numpy([*taken, *(name for name in found if name not in entries)])
    numbers = {name: _numbers(np.asarray(array), name, taken.get(name) or found[name]) for name, array in arrays.items()}
    parts = {ours: np.stack([one_column(repr(name), numbers[name]) for name in mine], 1) for ours, mine in entries.items()}
    return {ours: parts[theirs] if theirs in parts else numbers[theirs] for theirs, ours in found.items()}


def entry_names(columns: Columns | None) -> dict[str, tuple[str, ...]]:
    """Return the entry names of columns, by d3ray's name of each."""
    return {ours: (theirs,) if isinstance(theirs, str) else tuple(theirs) for ours, theirs in (columns or {}).items()}


def _numbers(values: np.ndarray, name: str, ours: str) -> np.ndarray:
    if ours == "episode" and len(values) and isinstance(values[0], str):
        return values.astype(np.str_)
    if values.dtype == np.object_:
        try:
            values = np.stack([np.asarray(value) for value in values])
        except ValueError:
            raise DataError(f"The column {name!r} has entries of several shapes.") from None
    if values.dtype.kind not in "biuf":
        raise DataError(f"The column {name!r} is of type {values.dtype}; numbers are needed.")
    return values


def together(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Rows one part after the other. Raises DataError where columns differ."""
    check_alike([kinds_of({name: column for name, column in part.items() if name != "episode"}) for part in parts])
    if len({part["episode"].dtype.kind for part in parts}) > 1:
        raise DataError("The column 'episode' holds numbers in some rows and text in others.")
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def write_fragment(folder: str, parts: Sequence[Mapping[str, np.ndarray]]) -> Fragment:
    """Writes transitions in order, as a file that no other has the name of. Raises DataError, StorageError."""
    rows = put_in_order(together(parts))
    ids, code, count = np.unique(rows["episode"], return_inverse=True, return_counts=True)
    rows["episode"] = code.astype(np.int64)
    place = Place(Place(folder).address(secrets.token_hex(8)))
    file = write_file(place, shard_name(0, 1), rows, None)
    shard = Shard(**file.model_dump(), rows=len(code), episodes=len(ids))
    return Fragment(place.name, shard, kinds_of(rows), ids, count)


def parts_by_episode(fragments: Sequence[Fragment], **options: Any) -> list[Part]:
    """Ranges of episodes of about 128 MiB, in the order of their ids.

    Args:
        fragments: of all transitions.
        options: for `steps_from_flat`.

    Raises:
        DataError: there is no transition, or fragments have different columns.
    """
    if not fragments:
        raise DataError("There is no transition in the Ray dataset.")
    check_alike([fragment.kinds for fragment in fragments])
    if len({fragment.ids.dtype.kind for fragment in fragments}) > 1:
        raise DataError("The column 'episode' holds numbers in some rows and text in others.")
    ids, code = np.unique(np.concatenate([fragment.ids for fragment in fragments]), return_inverse=True)
    rows = np.bincount(code, np.concatenate([fragment.count for fragment in fragments])).astype(np.int64)
    row_bytes = sum(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize for dtype, shape in fragments[0].kinds.values())
    parts: list[Part] = []
    for start, stop in plan_shards(rows, fragments[0].kinds, max_rows=max(1, PART_BYTES // row_bytes)):
        read = partial(_gather, [_Slice.of(fragment, ids[start:stop]) for fragment in fragments], options)
        parts.append(Part("the rows", read, int(rows[start:stop].sum()) * row_bytes))
    return parts


@dataclass(frozen=True)
class _Slice:
    """Rows `start` … `stop - 1` of a fragment, whose first episode is `first`; `number` [I] says which of the part each is."""

    folder: str
    shard: Shard
    kinds: Kinds
    start: int
    stop: int
    first: int
    number: np.ndarray

    @classmethod
    def of(cls, fragment: Fragment, ids: np.ndarray) -> _Slice:
        first, last = np.searchsorted(fragment.ids, ids[0]), np.searchsorted(fragment.ids, ids[-1], side="right")
        ends = np.concatenate([[0], np.cumsum(fragment.count)])
        number = np.searchsorted(ids, fragment.ids[first:last])
        return cls(fragment.folder, fragment.shard, fragment.kinds, int(ends[first]), int(ends[last]), int(first), number)

    def read(self) -> dict[str, np.ndarray]:
        rows = ShardFiles(Place(self.folder), (self.shard,), self.kinds)
        found = {name: rows.read(name, self.start, self.stop) for name in self.kinds}
        return found | {"episode": self.number[found["episode"] - self.first]}


def _gather(slices: list[_Slice], options: Mapping[str, Any]) -> tuple[StepTable, str]:
    table = steps_from_flat(put_in_order(together([one.read() for one in slices if one.stop > one.start])), **options)
    return table, str(table.cuts)
