"""Trees over priorities: drawing in proportion to them, changing some of them, and their least, in O(log n)."""

from __future__ import annotations

import numpy as np

FANOUT = 16  # children of a node
TOP = 4096  # nodes that are not grouped any more: to look through so many is cheaper than further levels


class Tree:
    """T rows of n numbers, with what an operation makes of groups of 16, of groups of those, and so on.

    Inner numbers are made anew from their parts at every change, so nothing drifts.

    Args:
        n: Numbers in a row.
        n_trees: T.
        operation: `np.add` or another of two numbers.
        empty: The number that changes no other; all are so at first.
    """

    def __init__(self, n: int, n_trees: int = 1, operation: np.ufunc = np.add, empty: float = 0.0) -> None:
        self.n, self.n_trees, self._operation = n, n_trees, operation
        self._levels: list[np.ndarray] = []  # from the leaves up: [T · groups, 16]
        self._groups: list[int] = []
        size = n
        while not self._groups or size > TOP:
            size = -(-size // FANOUT)
            self._groups.append(size)
            self._levels.append(np.full((n_trees * size, FANOUT), empty))
        self._top = np.full((n_trees, size), empty)
        self._tree = np.arange(n_trees)[:, None]

    @property
    def values(self) -> np.ndarray:
        """[T, n] the numbers, a view."""
        return self._levels[0].reshape(self.n_trees, -1)[:, : self.n]

    @property
    def total(self) -> np.ndarray:
        """[T]: what the operation makes of each row."""
        return self._operation.reduce(self._top, -1)

    def set(self, index: np.ndarray, values: np.ndarray) -> None:
        """Changes the numbers at `index` [T, K] to `values` [T, K]; of one that is named several times the last counts."""
        at, new = index, values.reshape(-1)
        for rows, groups in zip(self._levels, self._groups, strict=True):
            group = at // FANOUT
            node = (self._tree * groups + group).reshape(-1)
            rows[node, (at % FANOUT).reshape(-1)] = new
            new = self._operation.reduce(rows.take(node, 0), -1)
            at = group
        self._top[self._tree, at] = new.reshape(at.shape)

    def fill(self, values: np.ndarray) -> None:
        """Replaces all numbers, [T, n]."""
        for rows, groups in zip(self._levels, self._groups, strict=True):
            rows.reshape(self.n_trees, -1)[:, : values.shape[1]] = values
            values = self._operation.reduce(rows, -1).reshape(self.n_trees, groups)
        self._top[:] = values


class SumTree(Tree):
    """Numbers that are not negative, and where a share of their sum lies."""

    def find(self, share: np.ndarray) -> np.ndarray:
        """[T, K] numbers on [0, 1) to indices [T, K]: i where the sum of a row's first i values is at most that share of its total.

        What has the value zero is never found, unless all have.
        """
        edges = np.cumsum(self._top, -1)
        wanted = np.minimum(share * edges[:, -1:], np.nextafter(edges[:, -1:], 0))
        found = [np.searchsorted(edge, want, side="right") for edge, want in zip(edges, wanted, strict=True)]
        first = np.minimum(np.stack(found), edges.shape[1] - 1)
        rest = (wanted - np.where(first > 0, edges[self._tree, first - 1], 0.0)).reshape(-1)
        at, tree = first.reshape(-1), np.repeat(np.arange(self.n_trees), share.shape[1])
        sums, column = np.zeros((FANOUT + 1, share.size)), np.arange(share.size)
        for rows, groups in zip(reversed(self._levels), reversed(self._groups), strict=True):
            sums[1:] = rows.take(tree * groups + at, 0).T
            for i in range(1, FANOUT):  # running sums, one after the other: none is less than the one before, whatever the rounding
                np.add(sums[i], sums[i + 1], out=sums[i + 1])
            rest = np.minimum(rest, np.nextafter(sums[-1], 0))  # nor may rounding reach beyond the last that is not zero
            passed = np.add.reduce((sums[1:FANOUT] <= rest).view(np.uint8), 0, dtype=np.uint8)  # bytes add up fast
            child = passed.astype(np.int64)
            rest = rest - sums[child, column]
            at = at * FANOUT + child
        return at.reshape(share.shape)
