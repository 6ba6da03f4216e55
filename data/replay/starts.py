"""Which rows of rings of steps may be drawn: queues that are kept up to date as rows are written."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..sampling.windows import Place


class Mark(NamedTuple):
    """How far a queue had come when it was last looked at."""

    version: int
    entered: np.ndarray  # [n_rings]
    left: np.ndarray  # [n_rings]


class Starts:
    """Rows at which something that can be drawn starts, in the order of time: a queue for each ring, itself a ring.

    A row enters when its window is complete and leaves when it is overwritten, so a step costs the same however full a ring is.

    Args:
        step: [n_rings · rows] int32, of each row the steps of its episode before it. Read at every draw.
        oldest: [n_rings] int64, of each ring the number of the oldest row that it holds, counted from the first ever written.
        rows: Rows of each ring.
        frames: A row leaves when one of so many frames of its episode that end with it is overwritten.
    """

    def __init__(self, step: np.ndarray, oldest: np.ndarray, rows: int, frames: int = 1) -> None:
        n_rings = len(oldest)
        self.rows, self.frames, self.version = rows, frames, 0
        self.size, self.longest = n_rings * rows, rows  # slots; and what no length exceeds
        self._step = step
        self._slot, self._length = (np.zeros(n_rings * rows, np.int64) for _ in range(2))  # by place in the queue; by slot
        self._in, self._out = np.zeros(n_rings, np.int64), np.zeros(n_rings, np.int64)  # ever entered, and left again
        # the same memory
        self._tensors = tuple(map(torch.from_numpy, (self._slot, self._length, self._in, self._out, step, oldest)))

    @property
    def n(self) -> int:
        return int((self._in - self._out).sum())

    def push(self, ring: int, slot: int, length: int) -> None:
        """Add what starts at `slot`, which is complete and `length` steps long."""
        self._slot[ring * self.rows + int(self._in[ring]) % self.rows] = slot
        self._length[slot] = length
        self._in[ring] += 1

    def evict(self, ring: int, slot: int) -> None:
        """Drop what needs `slot`, which holds the oldest row of its ring and will be overwritten."""
        while self._in[ring] > self._out[ring]:
            head = int(self._slot[ring * self.rows + int(self._out[ring]) % self.rows])
            behind = (head - slot) % self.rows
            if behind and (behind >= self.frames or self._step[head] < behind):  # none of its frames lies there
                break
            self._out[ring] += 1

    def rebuild(self, ring: int, slots: np.ndarray, lengths: np.ndarray) -> None:
        """Replace a ring's queue by what starts at `slots`, oldest first."""
        first = ring * self.rows
        self._out[ring], self._in[ring] = 0, len(slots)
        self._slot[first : first + len(slots)], self._length[slots] = slots, lengths
        self.version += 1

    # ---- drawing

    def locate(self, number: Tensor, *, before: bool = False) -> Place:
        """Locate numbers [...], counted over all queues."""
        slot, _, entered, left, _, _ = self._tensors
        if len(left) == 1:
            position = (number + left) % self.rows
        else:
            count = entered - left
            ends = count.cumsum(0)
            ring = torch.searchsorted(ends, number, right=True)
            position = ring * self.rows + (number + (left - ends + count)[ring]) % self.rows
        return self.at(slot[position], before=before)

    def at(self, slots: Tensor, *, before: bool = False) -> Place:
        """Locate what starts at some slots [...]."""
        _, length, _, _, step, oldest = self._tensors
        several = len(oldest) > 1
        ring = slots // self.rows if several else torch.zeros((), dtype=torch.int64)
        first = ring * self.rows
        number = step[slots].to(torch.int64) if before else None
        there = None if number is None else torch.minimum(number, (slots - first - oldest[ring]) % self.rows)
        return Place(slots, slots, length[slots], there, number, (first, self.rows))

    # ---- what has changed

    def mark(self) -> Mark:
        return Mark(self.version, self._in.copy(), self._out.copy())

    def all(self) -> np.ndarray:
        """Return every slot that may be drawn, [n] int64."""
        return self._entries(self._out, self._in)

    def since(self, mark: Mark) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the slots that left and those that entered since a mark; None where that is no longer known."""
        if mark.version != self.version or (mark.left < self._in - self.rows).any():
            return None
        gone = self._entries(mark.left, np.minimum(self._out, mark.entered))
        return gone, self._entries(np.maximum(mark.entered, self._out), self._in)

    def _entries(self, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        rings = (
            self._slot[e * self.rows + np.arange(a, b) % self.rows]
            for e, (a, b) in enumerate(zip(start.tolist(), stop.tolist(), strict=True))
            if a < b
        )
        return np.concatenate([np.zeros(0, np.int64), *rings])
