"""Rings of rows in flat columns, and how far each has come. Whether they lie in memory or in files is the allocator's choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import DataError
from ..spec import Leaf
from ..storage.steps import StepTable, steps_from_rows

Kinds = Mapping[str, tuple[tuple[int, ...], str]]  # shape and dtype of an entry, by column
Allocate = Callable[[str, tuple[int, ...], str], np.ndarray]  # (name, shape, dtype): zeros, or what was there before
FLAGS = ("terminated", "truncated", "closing")


def in_memory(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Allocate zeros; memory is touched only as it fills."""
    del name
    return np.zeros(shape, dtype)


def kinds_of(spaces: Mapping[str, Leaf], floats: Mapping[str, tuple[int, ...]]) -> Kinds:
    """Return the kinds of columns of spaces, float64 as `steps_from_arrays` keeps it, and of columns of float32."""
    kept = {name: (space.shape, "float32" if space.dtype == "float64" else space.dtype) for name, space in spaces.items()}
    return kept | {name: (shape, "float32") for name, shape in floats.items()}


class Rings:
    """n rings, one an environment. Row r of ring e, counted from the first ever written, lies at slot e · rows + r % rows.

    A row is counted only once all of it is written, and given up before it is overwritten, so whoever looks at the columns at any
    moment, a process that opens the files of one that was killed included, sees whole rows in `tail` … `head - 1` of each ring.

    Args:
        rows: Rows of each ring.
        n_rings: How many.
        kinds: Columns of observations, actions, rewards and whatever else is kept; the flags are added.
        allocate: Makes the arrays.

    Attributes:
        columns: [n_rings · rows, ...] by name.
        missing: [n_rings · rows] bool: closing rows without a recorded final observation.
        step: [n_rings · rows] int32: steps of the row's episode before it; of a closing row, the episode's length.
        head, tail: [n_rings] int64: rows ever written; the oldest that is still there.
        open: [n_rings] int64: the row at which the unfinished episode starts; `head` where there is none.
        n_transitions: Rows in all that are not closing rows.
    """

    def __init__(self, rows: int, n_rings: int, kinds: Kinds, allocate: Allocate = in_memory) -> None:
        self.rows, self.n_rings = rows, n_rings
        size = rows * n_rings
        self.columns = {name: allocate(name, (size, *shape), dtype) for name, (shape, dtype) in kinds.items()}
        self.columns |= {name: allocate(name, (size,), "bool") for name in FLAGS}
        self.missing, self.step = allocate("missing", (size,), "bool"), allocate("step", (size,), "int32")
        self.head, self.tail = allocate("counters", (2, n_rings), "int64")
        np.minimum(self.tail, self.head, out=self.tail)  # a state was being loaded when the process ended
        self.open, self._first = np.zeros(n_rings, np.int64), np.arange(n_rings) * rows
        self.n_transitions = 0
        self.recount()

    def recount(self) -> None:
        """Find `open` and `n_transitions` in what the columns hold."""
        self.n_transitions = 0
        for e in range(self.n_rings):
            slots, head = self.slots(e), int(self.head[e])
            self.n_transitions += int((~self.columns["closing"][slots]).sum())
            unfinished = len(slots) > 0 and not self.columns["closing"][slots[-1]]
            self.open[e] = head - 1 - int(self.step[slots[-1]]) if unfinished else head

    def slot(self, e: int, row: int) -> int:
        return e * self.rows + row % self.rows

    def slots(self, e: int, newest: int | None = None) -> np.ndarray:
        """Return where the rows of a ring lie, oldest first; of the newest so many, or all."""
        head, tail = int(self.head[e]), int(self.tail[e])
        return e * self.rows + np.arange(tail if newest is None else max(tail, head - newest), head) % self.rows

    def unfinished(self, e: int) -> np.ndarray:
        """Return where the rows of a ring's unfinished episode lie, oldest first, but those that were overwritten."""
        return e * self.rows + np.arange(max(int(self.open[e]), int(self.tail[e])), int(self.head[e])) % self.rows

    def finished(self, e: int, since: int) -> tuple[np.ndarray, int]:
        """Return where a ring's finished episodes lie from row `since` on, as far as they are there; and the next row."""
        stop = int(self.open[e])
        return e * self.rows + np.arange(max(since, int(self.tail[e])), stop) % self.rows, stop

    def last(self, e: int) -> int:
        return self.slot(e, int(self.head[e]) - 1)

    def newest(self, n: int) -> np.ndarray | None:
        """Return where the newest n rows of every ring lie, oldest first, [n, rings] int64; None where one has fewer."""
        if (self.head - self.tail < n).any():
            return None
        return self._first + (self.head - np.arange(n, 0, -1)[:, None]) % self.rows

    def is_open(self, e: int) -> bool:
        return bool(self.head[e] > self.open[e])

    def full(self, rings: slice) -> list[tuple[int, int]]:
        """List those of some rings that have no room, each with the slot of the row that its next one overwrites."""
        full = np.flatnonzero(self.head[rings] - self.tail[rings] >= self.rows) + rings.start
        return [(e, self.slot(e, int(self.head[e]))) for e in full.tolist()]

    def write(self, rings: slice, values: Mapping[str, Any], *, closing: bool = False, missing: bool = False) -> None:
        """Write the next row of each of some rings, [n, ...] by column. Columns that `values` leaves out become zero."""
        if (n := rings.stop - rings.start) == 1:
            slot = self.slot(rings.start, int(self.head[rings.start]))
            at: Any = slice(slot, slot + 1)
        else:
            at = self._first[rings] + self.head[rings] % self.rows
        full = self.head[rings] - self.tail[rings] >= self.rows
        if full.any():
            self.n_transitions -= int((full & ~self.columns["closing"][at]).sum())
            self.tail[rings] += full
        for name, column in self.columns.items():
            column[at] = values.get(name, 0)
        self.columns["closing"][at], self.missing[at] = closing, missing
        self.step[at] = self.head[rings] - self.open[rings]
        self.n_transitions += 0 if closing else n
        self.head[rings] += 1  # from here on the rows are there
        if closing:
            self.open[rings] = self.head[rings]

    def steps(self, observations: tuple[str, ...]) -> StepTable:
        """Copy what the rings hold, one after the other; a missing end repeats the columns `observations`. Raises DataError."""
        if not self.n_transitions:
            raise DataError("The replay buffer holds no transition yet.")
        parts: list[dict[str, np.ndarray]] = []
        missing: list[np.ndarray] = []
        for e in range(self.n_rings):
            slots = self.slots(e)
            if len(slots) and self.columns["closing"][slots[0]]:
                slots = slots[1:]  # nothing is left of its episode but the closing row
            if not len(slots):
                continue
            part, unknown = {key: column[slots] for key, column in self.columns.items()}, self.missing[slots]
            if self.is_open(e):
                part["truncated"][-1] = True
                for key, column in part.items():
                    end = column[-1:] if key in observations else np.full_like(column[-1:], key == "closing")
                    part[key] = np.concatenate([column, end])
                unknown = np.append(unknown, True)
            parts.append(part)
            missing.append(unknown[part["closing"]])
        columns = {key: np.concatenate([part[key] for part in parts]) for key in self.columns}
        return steps_from_rows(columns, ~np.concatenate(missing))

    # ---- state

    def _arrays(self) -> dict[str, np.ndarray]:
        own = {"missing": self.missing, "step": self.step}
        return own | {f"column/{name}": column for name, column in self.columns.items()}

    def _by_ring(self, array: np.ndarray) -> np.ndarray:
        """View an array as [n_rings, rows, ...]."""
        return array.reshape(self.n_rings, self.rows, *array.shape[1:])

    def state(self) -> dict[str, np.ndarray]:
        """Return all that `load_state` needs, by name, without rows of rings that are not full."""
        filled = min(int(self.head.max()), self.rows)
        state = {name: np.ascontiguousarray(self._by_ring(array)[:, :filled]) for name, array in self._arrays().items()}
        return state | {"head": self.head.copy(), "tail": self.tail.copy()}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Become the rings that gave `state`, whose arrays are copied. Raises DataError where that is of other rings."""
        arrays, counters = self._arrays(), {"head", "tail"}
        if wrong := arrays.keys() ^ (state.keys() - counters) | counters - state.keys():
            raise DataError(f"This is no state of such a replay buffer: {min(wrong)!r} does not fit.")
        head = state["head"].astype(np.int64)
        filled = min(int(head.max(initial=0)), self.rows)
        for name, array in arrays.items():
            needed = (self.n_rings, filled, *array.shape[1:])
            if state[name].shape != needed or head.shape != (self.n_rings,):
                raise DataError(
                    f"{name!r} of the replay buffer's state has shape {list(state[name].shape)}; {list(needed)} is needed."
                )
        self.head[:] = self.tail[:] = 0  # nothing is there until all of it is
        for name, array in arrays.items():
            self._by_ring(array)[:, :filled] = state[name]
            self._by_ring(array)[:, filled:] = 0
        self.tail[:] = state["tail"]
        self.head[:] = head
        self.recount()
