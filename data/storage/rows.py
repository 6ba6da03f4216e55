"""The logical rows of a dataset, read in blocks wherever they lie: what digests, statistics, writers and exporters read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from .schema import Kinds, kinds_of

Columns = Mapping[str, np.ndarray]
BLOCK = 1 << 16  # rows that a digest and a partial statistic cover; part of what a fingerprint means


class Rows(Protocol):
    """Rows 0 … n - 1 of named columns, closing rows included."""

    n: int

    def names(self) -> list[str]: ...

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Read rows `start` … `stop - 1` of a column."""
        ...


class Table(Rows, Protocol):
    """Rows that can be read in any order too."""

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Read the rows whose numbers are `rows` [n] int64."""
        ...


class ArrayRows:
    """Rows of arrays."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self._columns, self.n = columns, len(columns["reward"])

    def names(self) -> list[str]:
        return list(self._columns)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        return self._columns[name][start:stop]

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        return self._columns[name][rows]


class EpisodeRows:
    """Rows of some episodes of a table, one episode after the other. Picklable where the table is."""

    def __init__(self, table: Table, first_row: np.ndarray, steps: np.ndarray) -> None:
        self._table, self._first, self._length = table, np.asarray(first_row, np.int64), np.asarray(steps, np.int64) + 1
        self._ends = np.cumsum(self._length)
        self.n = int(self._ends[-1]) if len(self._ends) else 0

    def names(self) -> list[str]:
        return self._table.names()

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        first, length = self._spans(start, stop)
        if (first[1:] == first[:-1] + length[:-1]).all():
            return self._table.read(name, int(first[0]), int(first[-1] + length[-1]))
        return self._table.take(name, ranges(first, length))

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        episode = np.searchsorted(self._ends, rows, side="right")
        return self._table.take(name, rows - (self._ends - self._length)[episode] + self._first[episode])

    def _spans(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Find where rows `start` … `stop - 1` lie in the table: first rows and lengths of stretches."""
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right")
        here = slice(int(first), int(last) + 1)
        begin = self._ends[here] - self._length[here]
        low = np.maximum(begin, start)
        return self._first[here] + low - begin, np.maximum(np.minimum(self._ends[here], stop) - low, 0)


class JoinedRows:
    """Rows of several tables, one table after the other. Picklable where the tables are."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = list(tables)
        self._starts = np.cumsum([0, *(table.n for table in tables)])
        self.n = int(self._starts[-1])

    def names(self) -> list[str]:
        return self._tables[0].names()

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        if stop <= start:
            return self._tables[0].read(name, 0, 0)
        return joined([self._tables[k].read(name, a, b) for k, a, b in spans(self._starts, start, stop)])

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        table = np.searchsorted(self._starts, rows, side="right") - 1
        out: np.ndarray | None = None
        for k in np.unique(table).tolist():
            mine = table == k
            values = self._tables[k].take(name, rows[mine] - self._starts[k])
            out = np.empty((len(rows), *values.shape[1:]), values.dtype) if out is None else out
            out[mine] = values
        return self._tables[0].read(name, 0, 0) if out is None else out


def spans(starts: np.ndarray, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Find which of several tables, back to back from `starts` on, have rows `start` … `stop - 1`, and which rows of each."""
    first, last = np.searchsorted(starts, [start, stop - 1], side="right") - 1
    for k in range(int(first), int(last) + 1):
        yield k, max(start - int(starts[k]), 0), min(stop, int(starts[k + 1])) - int(starts[k])


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Count `length[0]` numbers from `start[0]`, then `length[1]` from `start[1]`, and so on."""
    shift = start - (np.cumsum(length) - length)
    return np.arange(int(length.sum())) + np.repeat(shift, length)


def n_blocks(n_rows: int) -> int:
    return -(-n_rows // BLOCK)


def block(rows: Rows, name: str, k: int) -> np.ndarray:
    return rows.read(name, k * BLOCK, min((k + 1) * BLOCK, rows.n))


class Memory:
    """Columns that are there; nobody writes to them any more."""

    folders = ()
    in_memory = True

    def __init__(self, columns: Columns) -> None:
        self._columns = {key: read_only(column) for key, column in columns.items()}

    @property
    def kinds(self) -> Kinds:
        return kinds_of(self._columns)

    def columns(self) -> Columns:
        return self._columns

    def table(self, *, in_order: bool) -> Table:
        del in_order
        return self.in_place()

    def in_place(self) -> Table:
        return ArrayRows(self._columns)


def read_only(column: np.ndarray) -> np.ndarray:
    view = column.view()
    view.flags.writeable = False
    return view
