"""Episodes of a dataset as tables in memory, some at a time: what writers of shards and exporters read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .episode_table import EpisodeTable
from .rows import BLOCK, EpisodeRows
from .schema import Kinds
from .steps import StepTable


@dataclass(frozen=True, init=False)
class StepTables:
    """Ranges of a dataset's episodes as a `StepTable` each.

    `piecewise` reads all columns of some rows before further rows, so that shards are opened once; copies.
    """

    rows: EpisodeRows
    kinds: Kinds
    steps: np.ndarray
    terminated: np.ndarray
    final_recorded: np.ndarray
    piecewise: bool

    def __init__(self, rows: EpisodeRows, kinds: Kinds, episodes: EpisodeTable, *, piecewise: bool) -> None:
        arrays = {name: np.asarray(getattr(episodes, name)) for name in ("steps", "terminated", "final_recorded")}
        for name, value in {"rows": rows, "kinds": kinds, "piecewise": piecewise, **arrays}.items():
            object.__setattr__(self, name, value)

    def read(self, start: int, stop: int, cuts: int = 0) -> StepTable:
        """Read episodes; columns are views where their rows lie back to back in one array, else copies."""
        first = int(self.steps[:start].sum()) + start
        steps = self.steps[start:stop]
        last = first + int(steps.sum()) + len(steps)
        return StepTable(
            columns=self._copied(first, last) if self.piecewise else {n: self.rows.read(n, first, last) for n in self.kinds},
            first_row=np.cumsum(steps + 1) - (steps + 1),
            steps=steps,
            terminated=self.terminated[start:stop],
            final_recorded=self.final_recorded[start:stop],
            cuts=cuts,
        )

    def _copied(self, first: int, last: int) -> dict[str, np.ndarray]:
        out = {name: np.empty((last - first, *shape), dtype) for name, (dtype, shape) in self.kinds.items()}
        for row in range(first, last, BLOCK):
            for name, column in out.items():
                part = column[row - first : row - first + BLOCK]
                part[:] = self.rows.read(name, row, row + len(part))
        return out
