"""A tree of sums over priorities: drawing in proportion to them, and changing some of them, in O(log n)."""

from __future__ import annotations

import numpy as np

FANOUT = 32  # children of a node: four levels for a million leaves, each a few operations on whole arrays


class SumTree:
    """T rows of n numbers that are not negative, with running sums over groups of 32, groups of those, and so on.

    Sums are made anew from their parts at every change, so nothing drifts.

    Args:
        n: Numbers in a row.
        n_trees: T.

    Attributes:
        values: [T, n] float64, the numbers; written by `set` only.
    """

    def __init__(self, n: int, n_trees: int = 1) -> None:
        self.n, self.n_trees = n, n_trees
        self._values: list[np.ndarray] = []  # by level, from the leaves up: [T · groups, 32]
        self._sums: list[np.ndarray] = []  # the same, added up along each group
        self._groups: list[int] = []
        size = n
        while True:
            groups = -(-size // FANOUT)
            self._groups.append(groups)
            self._values.append(np.zeros((n_trees * groups, FANOUT)))
            self._sums.append(np.zeros((n_trees * groups, FANOUT)))
            if groups == 1:
                break
            size = groups
        self._tree = np.arange(n_trees)[:, None]

    @property
    def values(self) -> np.ndarray:
        return self._values[0].reshape(self.n_trees, -1)[:, : self.n]

    @property
    def total(self) -> np.ndarray:
        """[T]: the sum of each row."""
        return self._sums[-1][:, -1]

    def set(self, index: np.ndarray, values: np.ndarray) -> None:
        """Changes the numbers at `index` [T, B] to `values` [T, B]; of one that is named several times the last counts."""
        at = index
        for level, groups in enumerate(self._groups):
            node = self._tree * groups + at // FANOUT
            rows = self._values[level]
            rows[node, at % FANOUT] = values
            sums = np.cumsum(rows[node], -1)
            self._sums[level][node] = sums
            at, values = at // FANOUT, sums[..., -1]

    def fill(self, values: np.ndarray) -> None:
        """Replaces all numbers, [T, n]."""
        for level, groups in enumerate(self._groups):
            rows = self._values[level].reshape(self.n_trees, -1)
            rows[:, : values.shape[1]] = values
            self._sums[level][:] = np.cumsum(self._values[level], -1)
            values = self._sums[level][:, -1].reshape(self.n_trees, groups)

    def find(self, share: np.ndarray) -> np.ndarray:
        """[T, B] numbers on [0, 1) to indices [T, B]: i where the sum of a row's first i values is at most that share of its total.

        What has the value zero is never found, unless all have.
        """
        rest = share * self.total[:, None]
        at = np.zeros(share.shape, np.int64)
        for level in range(len(self._groups) - 1, -1, -1):
            sums = self._sums[level][self._tree * self._groups[level] + at]
            rest = np.minimum(rest, np.nextafter(sums[..., -1], 0))  # rounding must not reach beyond the last that is not zero
            child = (sums > rest[..., None]).argmax(-1)
            below = np.take_along_axis(sums, np.maximum(child - 1, 0)[..., None], -1)[..., 0]
            rest = rest - np.where(child > 0, below, 0.0)
            at = at * FANOUT + child
        return at
