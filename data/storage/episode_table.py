"""The episodes of a dataset: arrays over all of them, as `episodes.arrow` has them, and ranges of them as tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .rows import BLOCK, Rows, ranges
from .schema import Kinds
from .steps import StepTable


class EpisodeTable:
    """`first_row`, `steps` [E] int64, `terminated`, `final_recorded` [E] bool, `returns` [E] float64.

    Episode e is rows `first_row[e]` … `first_row[e] + steps[e]` of the columns, its closing row last.
    """

    def __init__(
        self,
        first_row: np.ndarray,
        steps: np.ndarray,
        terminated: np.ndarray,
        final_recorded: np.ndarray,
        returns: np.ndarray | Callable[[], np.ndarray],  # the latter where rewards have to be computed first
    ) -> None:
        self.first_row, self.steps, self._returns = first_row, steps, returns
        self.terminated, self.final_recorded = terminated, final_recorded

    @classmethod
    def end_to_end(cls, parts: Sequence[Any]) -> EpisodeTable:
        """Make the table of all episodes of several tables, or records of shards, which follow each other from row 0 on."""
        steps, terminated, recorded = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("steps", "terminated", "final_recorded")
        )
        first_row = np.cumsum(steps + 1) - (steps + 1)
        return EpisodeTable(first_row, steps, terminated, recorded, lambda: np.concatenate([part.returns for part in parts]))

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def returns(self) -> np.ndarray:
        """Undiscounted sums of rewards, [E] float64."""
        if not isinstance(self._returns, np.ndarray):
            self._returns = self._returns()
        return self._returns

    def returns_of(self, index: np.ndarray | slice) -> np.ndarray | Callable[[], np.ndarray]:
        """Choose returns; where they have yet to be computed, as what computes them."""
        return self._returns[index] if isinstance(self._returns, np.ndarray) else lambda: self.returns[index]

    @cached_property
    def contiguous(self) -> bool:
        """True where episodes are back to back from row 0, so that transition i of episode e sits at row i + e."""
        return bool((self.first_row == np.cumsum(self.steps + 1) - (self.steps + 1)).all())

    @cached_property
    def in_order(self) -> bool:
        """True where no episode lies before the one that it follows, so that one pass over the rows meets them all."""
        return bool((np.diff(self.first_row) > 0).all())

    @cached_property
    def n_transitions(self) -> int:
        return int(self.steps.sum())

    def transition_rows(self) -> np.ndarray:
        """Return the row of each transition in the columns, episode after episode: [n_transitions] int64."""
        return ranges(self.first_row, self.steps)

    def rows(self) -> np.ndarray:
        """Return the row of each step and closing row in the columns, episode after episode: [n_rows] int64."""
        return ranges(self.first_row, self.steps + 1)


def best_episodes(returns: np.ndarray, steps: np.ndarray, share: float, by: str) -> np.ndarray:
    """Choose the episodes of the highest returns [E], one at least: [k] int64, rising; the earlier of equal ones comes first.

    By "episodes" it is that share of them, above 0 and at most 1, rounded down. By "transitions" it is episodes from the best one
    on, until another would give them more than that share of all `steps` [E], as in the code of Chen et al. 2021
    (kzl/decision-transformer, gym/experiment.py).
    """
    best = np.argsort(-np.asarray(returns, np.float64), kind="stable")
    if by == "episodes":
        n = max(1, int(share * len(best) + 1e-9))  # 0.1 of 30 is three, whatever floats make of it
    else:
        n = max(1, int(np.searchsorted(np.cumsum(steps[best]), share * steps.sum() + 1e-6, side="right")))
    return np.sort(best[:n])


class StepTables:
    """Ranges of episodes, of a dataset or of a shard by its record, as a `StepTable` each.

    `piecewise` reads all columns of some rows before further rows, so that shards are opened once; copies.
    """

    def __init__(self, rows: Rows, kinds: Kinds, episodes: Any, *, piecewise: bool = False) -> None:
        self.rows, self.kinds, self.piecewise = rows, kinds, piecewise
        self.steps, self.terminated = np.asarray(episodes.steps), np.asarray(episodes.terminated)
        self.final_recorded = np.asarray(episodes.final_recorded)

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
