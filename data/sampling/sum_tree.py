"""Trees over priorities: drawing in proportion to them, changing some of them, and their least, in O(log n)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """A function of arrays and numbers, compiled once for each of their types and kept beside its file for later processes.

    Where nothing can be kept, as in an image that is read-only, each process compiles anew, in a second or two. Indices are not
    checked: a function looks at those that come from outside. Other threads run meanwhile.
    """

    @functools.cache
    def made() -> Callable[..., Any]:
        import numba  # takes half a second, and few processes come to it

        try:
            return numba.njit(function, cache=True, nogil=True)
        except RuntimeError:  # "no locator available": neither the file's folder nor the user's cache can be written
            return numba.njit(function, nogil=True)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return made()(*arguments)

    return call  # pyright: ignore[reportReturnType]


FANOUT = 4  # children of a node: all are looked at without a branch, which a processor could not guess


class Tree:
    """T rows of n numbers, with the sum or the least of groups of 4, of groups of those, and so on up to one.

    Inner numbers are made anew from their parts at every change, so nothing drifts. All of a batch go up or down together, level by
    level, so that a processor waits for the memory of many at once; compiled, for NumPy takes 6 to 22 times as long to find
    and 4 to 5 times as long to set (32 to 256 of 1e5 to 1e6 numbers, in groups of 32).

    Args:
        n: Numbers in a row.
        n_trees: T.
        least: Whether the least of a group is kept; otherwise its sum.
    """

    def __init__(self, n: int, n_trees: int = 1, *, least: bool = False) -> None:
        self.n, self.n_trees, self._least = n, n_trees, least
        groups = [-(-n // FANOUT)]
        while groups[-1] > 1:
            groups.append(-(-groups[-1] // FANOUT))
        groups.append(1)  # the root, alone in its group
        self._starts = np.cumsum([0, *groups]) * FANOUT  # where each level begins in a row, from the leaves up
        self._numbers = _aligned(n_trees, int(self._starts[-1]))
        self._numbers[:] = np.inf if least else 0.0
        self._flat = self._numbers.reshape(-1)
        self._rows = np.arange(n_trees)[:, None] * self._numbers.shape[1]  # where each begins in `_flat`

    @property
    def values(self) -> np.ndarray:
        return self._numbers[:, : self.n]

    @property
    def total(self) -> np.ndarray:
        """The sum of each row, or its least, [T]."""
        return self._numbers[:, self._starts[-2]]

    def at(self, index: np.ndarray) -> np.ndarray:
        return self._flat.take(index + self._rows)

    def set(self, index: np.ndarray, values: np.ndarray) -> None:
        """Set the numbers at `index` [T, K] to `values` [T, K]; of equal ones the last counts. Raises IndexError."""
        _set(self._numbers, self._starts, self._least, self.n, np.array(index, np.int64), np.array(values, np.float64))

    def fill(self, values: np.ndarray) -> None:
        self._numbers[:, : self.n] = values
        reduce = np.minimum.reduce if self._least else np.add.reduce
        for first, last in zip(self._starts[:-2], self._starts[1:-1], strict=True):
            made = reduce(self._numbers[:, first:last].reshape(self.n_trees, -1, FANOUT), -1)
            self._numbers[:, last : last + made.shape[1]] = made


class SumTree(Tree):
    """Numbers that are not negative, and where a share of their sum lies."""

    def __init__(self, n: int, n_trees: int = 1) -> None:
        super().__init__(n, n_trees)

    def find(self, share: np.ndarray) -> np.ndarray:
        """[T, K] numbers on [0, 1) to indices [T, K]: i where the sum of a row's first i values is at most that share of its total.

        What has the value zero is never found, unless all have.
        """
        return _find(self._numbers, self._starts, np.array(share, np.float64))


def _aligned(rows: int, width: int) -> np.ndarray:
    """Allocate [rows, width] whose groups each lie in one line of a processor's cache."""
    memory = np.empty(rows * width + 8)
    skipped = -memory.ctypes.data // 8 % 8
    return memory[skipped : skipped + rows * width].reshape(rows, width)


@compiled
def _set(numbers: Any, starts: Any, least: Any, n: Any, index: Any, values: Any) -> None:
    """Set values and their sums; `index` is overwritten."""
    for t in range(len(index)):
        row, at = numbers[t], index[t]
        for k in range(len(at)):
            if at[k] < 0 or at[k] >= n:
                raise IndexError("An index lies outside of the tree.")
            row[at[k]] = values[t, k]
        for level in range(len(starts) - 2):
            for k in range(len(at)):
                at[k] //= FANOUT
                first = starts[level] + at[k] * FANOUT
                made = row[first]
                for part in row[first + 1 : first + FANOUT]:
                    made = min(made, part) if least else made + part
                row[starts[level + 1] + at[k]] = made


@compiled
def _find(numbers: Any, starts: Any, share: Any) -> Any:
    """Find where shares lie; `share` is overwritten."""
    found = np.zeros(share.shape, np.int64)
    for t in range(len(share)):
        row, at, rest = numbers[t], found[t], share[t]
        total = row[starts[-2]]
        most = np.nextafter(total, 0.0)
        for k in range(len(at)):
            rest[k] = min(rest[k] * total, most)
        for level in range(len(starts) - 3, -1, -1):
            for k in range(len(at)):
                first = starts[level] + at[k] * FANOUT
                wanted, child, last, before, reached = rest[k], 0, 0, 0.0, 0.0
                for j in range(FANOUT):
                    part = row[first + j]
                    reached += part
                    passed = reached <= wanted
                    child += passed
                    before = reached if passed else before
                    last = j if part > 0 else last
                rest[k] = wanted - before
                if child > last:  # rounding reached beyond the last that is not zero
                    child, rest[k] = last, np.nextafter(row[first + last], 0.0)
                at[k] = at[k] * FANOUT + child
    return found
