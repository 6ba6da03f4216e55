"""Which rows of a ring of steps may start an n-step window: queues that are kept up to date as rows are written."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Starts:
    """Rows at which a window of n steps may start, in the order of time: a queue for each ring, itself a ring.

    A row enters when its window is complete and leaves when it is overwritten, so a step costs the same however full a ring is.

    Args:
        n: Steps of a window.
        n_rings: Rings, one after the other in flat columns.
        rows: Rows of each.
    """

    def __init__(self, n: int, n_rings: int, rows: int) -> None:
        self.n, self.rows = n, rows
        self._slot, self._steps = np.zeros(n_rings * rows, np.int64), np.zeros(n_rings * rows, np.int64)
        self._tail, self._count = np.zeros(n_rings, np.int64), np.zeros(n_rings, np.int64)
        self._shared = tuple(map(torch.from_numpy, (self._slot, self._steps, self._tail, self._count)))  # the same memory

    @property
    def total(self) -> int:
        """Windows that may be drawn."""
        return int(self._count.sum())

    def push(self, ring: int, slot: int, steps: int) -> None:
        """The window that starts at `slot` is complete and `steps` long, at most n."""
        at = ring * self.rows + (int(self._tail[ring]) + int(self._count[ring])) % self.rows
        self._slot[at], self._steps[at] = slot, steps
        self._count[ring] += 1

    def evict(self, ring: int, slot: int) -> None:
        """`slot`, which holds the oldest row of its ring, will be overwritten."""
        tail = int(self._tail[ring])
        if self._count[ring] and self._slot[ring * self.rows + tail] == slot:
            self._tail[ring] = (tail + 1) % self.rows
            self._count[ring] -= 1

    def rebuild(self, ring: int, slots: np.ndarray, closing: np.ndarray, blind: np.ndarray) -> None:
        """Finds the windows of a ring anew: what `push` and `evict` would have kept.

        Args:
            ring: Which.
            slots: [R] where its rows lie, oldest first.
            closing: [R] bool: closing rows.
            blind: [R] bool: closing rows that nothing may be bootstrapped from.
        """
        ends, row = np.flatnonzero(closing), np.arange(len(slots))
        episode = np.searchsorted(ends, row)
        # an unfinished episode has no closing row: windows need the row of their next observation, and there it is not yet written
        left = np.append(ends, len(slots) - 1)[episode] - row
        complete = np.append(~blind[ends], False)[episode] & (left > 0)
        unfinished = episode == len(ends)
        drawable = complete | (left >= self.n + ~unfinished)
        count, first = int(drawable.sum()), ring * self.rows
        self._tail[ring], self._count[ring] = 0, count
        self._slot[first : first + count], self._steps[first : first + count] = slots[drawable], np.minimum(left[drawable], self.n)

    def locate(self, number: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers of windows [...], counted over all queues, to slots, lengths and the first slots of their rings, [...] each."""
        slot, steps, tail, count = self._shared
        if len(tail) == 1:
            position, first = (number + tail) % self.rows, torch.zeros((), dtype=torch.int64)
        else:
            ends = count.cumsum(0)
            ring = torch.searchsorted(ends, number, right=True)
            first = ring * self.rows
            position = first + (number + (tail - ends + count)[ring]) % self.rows
        return slot[position], steps[position], first
