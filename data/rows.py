"""The logical rows of a dataset, read in blocks wherever they lie: what digests, statistics, writers and exporters read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from .episodes import Episodes

BLOCK = 1 << 16  # rows that a digest and a partial statistic cover; part of what a fingerprint means


class Rows(Protocol):
    """Rows 0 … n - 1 of named columns, closing rows included."""

    n: int

    def names(self) -> list[str]:
        """Columns, in any order."""
        ...

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows `start` … `stop - 1` of a column."""
        ...


class ArrayRows:
    """Rows of arrays, all of them or those of some episodes."""

    def __init__(self, columns: Mapping[str, np.ndarray], episodes: Episodes) -> None:
        whole = episodes.contiguous and len(columns["reward"]) == episodes.n_transitions + len(episodes)
        self._columns, self._index = columns, None if whole else episodes.rows()
        self.n = episodes.n_transitions + len(episodes)

    def names(self) -> list[str]:
        return list(self._columns)

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        column = self._columns[name]
        return column[start:stop] if self._index is None else column[self._index[start:stop]]


def n_blocks(n_rows: int) -> int:
    """Blocks that cover `n_rows`."""
    return -(-n_rows // BLOCK)


def block(rows: Rows, name: str, k: int) -> np.ndarray:
    """Block `k` of a column."""
    return rows.read(name, k * BLOCK, min((k + 1) * BLOCK, rows.n))
