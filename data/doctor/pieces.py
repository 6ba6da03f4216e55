"""The rows of a dataset piece by piece, in order, each piece with the row before it and the row after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..dataset import Dataset
from ..storage.rows import BLOCK

_BYTES = 1 << 25  # of a piece's rows; fewer rows of images than of vectors are read at once


@dataclass(frozen=True)
class Piece:
    """Rows `start` … `start + n - 1` in [before, before + n) of the arrays; up to one more row lies on either side."""

    start: int
    before: int
    n: int
    columns: Mapping[str, np.ndarray]
    episode: np.ndarray  # [n]
    position: np.ndarray  # [n]: step in the episode
    closing: np.ndarray  # [n] bool, by the table of episodes

    def rows(self, name: str, shift: int = 0) -> np.ndarray:
        """Take [n, ...] of a column, with shift 1 one row later (fewer at the very end of the data)."""
        return self.columns[name][self.before + shift : self.before + shift + self.n]


def n_pieces(dataset: Dataset) -> int:
    """Count the calls of `advance` that `survey` makes."""
    return -(-dataset.n_rows // _rows_at_once(dataset))


def _rows_at_once(dataset: Dataset) -> int:
    wide = sum(np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in dataset.kinds.values())
    return max(1, min(BLOCK, _BYTES // max(wide, 1)))


def pieces(dataset: Dataset) -> Iterator[Piece]:
    steps, first, rows = np.asarray(dataset.episodes.steps, np.int64), first_rows(dataset), dataset.rows()
    at_once = _rows_at_once(dataset)
    for start in range(0, rows.n, at_once):
        stop = min(start + at_once, rows.n)
        begin, end = max(start - 1, 0), min(stop + 1, rows.n)
        columns = {name: rows.read(name, begin, end) for name in rows.names()}
        row = np.arange(start, stop)
        a, b = np.searchsorted(first, [start, stop - 1], side="right")
        episode = np.repeat(np.arange(a - 1, b), np.diff(np.r_[start, first[a:b], stop]))
        position = row - first[episode]
        yield Piece(start, start - begin, stop - start, columns, episode, position, position == steps[episode])


def first_rows(dataset: Dataset) -> np.ndarray:
    """Return the logical row that each episode begins with, [E] int64."""
    rows = np.asarray(dataset.episodes.steps, np.int64) + 1
    return np.cumsum(rows) - rows
