"""Trees over priorities: drawing in proportion to them, changing some of them, and their least, in O(log n)."""

from __future__ import annotations

import numpy as np
import torch

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
        self._first = [self._tree * groups * FANOUT for groups in self._groups]  # of each tree, where its numbers begin

    @property
    def values(self) -> np.ndarray:
        """[T, n] the numbers, a view."""
        return self._levels[0].reshape(self.n_trees, -1)[:, : self.n]

    @property
    def total(self) -> np.ndarray:
        """[T]: what the operation makes of each row."""
        return self._operation.reduce(self._top, -1)

    def at(self, index: np.ndarray) -> np.ndarray:
        """[T, K] the numbers at `index` [T, K]."""
        return self._levels[0].reshape(-1).take(self._first[0] + index)

    def set(self, index: np.ndarray, values: np.ndarray) -> None:
        """Changes the numbers at `index` [T, K] to `values` [T, K]; of one that is named several times the last counts."""
        at, new = index, values
        for rows, first in zip(self._levels, self._first, strict=True):
            place = first + at
            rows.reshape(-1)[place] = new
            new = self._operation.reduce(rows.take(place // FANOUT, 0), -1)
            at = at // FANOUT
        self._top.reshape(-1)[self._tree * self._top.shape[1] + at] = new

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
        edges = _running_sums(self._top)
        wanted = np.minimum(share * edges[:, -1:], np.nextafter(edges[:, -1:], 0))
        found = [np.searchsorted(edge, want, side="right") for edge, want in zip(edges, wanted, strict=True)]
        at = child = np.minimum(np.stack(found), edges.shape[1] - 1)
        rest, sums, begin = wanted, edges, self._tree * edges.shape[1]
        groups = np.arange(0, share.size * FANOUT, FANOUT).reshape(share.shape)
        for rows, first in zip(reversed(self._levels), reversed(self._first), strict=True):
            rest = rest - np.where(child > 0, sums.reshape(-1).take(begin + child - 1), 0.0)
            sums, begin = _running_sums(rows.take(first // FANOUT + at, 0)), groups
            rest = np.minimum(rest, np.nextafter(sums[..., -1], 0))  # rounding may not reach beyond the last that is not zero
            child = (sums <= rest[..., None]).argmin(-1)  # the first that is more
            at = at * FANOUT + child
        return at


def _running_sums(x: np.ndarray) -> np.ndarray:
    """Along the last axis, one after the other: where nothing is negative none is less than the one before, whatever the rounding.

    NumPy's, of many short rows, takes eight times as long.
    """
    return torch.from_numpy(x).cumsum(-1).numpy()
