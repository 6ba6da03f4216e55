"""Episodes of a dataset: arrays over all of them, and each as an object."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np

Columns = Mapping[str, np.ndarray]


class ColumnSource(Protocol):
    """Where columns come from: memory, or a folder that maps its files when they are asked for."""

    def columns(self) -> Columns:
        """The columns, the same ones every time."""
        ...


@dataclass(frozen=True)
class Episode:
    """One episode of T transitions, as views of the dataset's columns."""

    columns: dict[str, np.ndarray]  # T + 1 rows each
    terminated: bool  # the MDP ended: nothing is bootstrapped past the last step
    final_recorded: bool  # false: the last row of `observations` repeats the one before it

    def __len__(self) -> int:
        """T."""
        return len(self.columns["reward"]) - 1

    @property
    def observations(self) -> Any:
        """[T + 1, ...], or a dict of such arrays; the last one is the final observation."""
        if "observation" in self.columns:
            return self.columns["observation"]
        return {name.removeprefix("observation/"): c for name, c in self.columns.items() if name.startswith("observation/")}

    @property
    def actions(self) -> np.ndarray:
        """[T, A] float32, or [T] int64."""
        return self.columns["action"][:-1]

    @property
    def rewards(self) -> np.ndarray:
        """[T] float32."""
        return self.columns["reward"][:-1]

    def compute_return(self) -> float:
        """Undiscounted sum of rewards, added up in float64."""
        return float(self.rewards.sum(dtype=np.float64))


class Episodes(Sequence[Episode]):
    """A sequence of episodes that is also arrays: `first_row`, `steps` [E] int64, `terminated`, `final_recorded` [E] bool,
    `returns` [E] float64. Episode e is rows `first_row[e]` … `first_row[e] + steps[e]` of the columns, its closing row last.
    """  # noqa: D205 - one sentence of arrays

    def __init__(
        self,
        first_row: np.ndarray,
        steps: np.ndarray,
        terminated: np.ndarray,
        final_recorded: np.ndarray,
        returns: np.ndarray,
        source: ColumnSource | None,
    ) -> None:
        self.first_row, self.steps, self.returns = first_row, steps, returns
        self.terminated, self.final_recorded = terminated, final_recorded
        self._source = source

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> Episodes: ...
    def __getitem__(self, index: int | slice) -> Episode | Episodes:
        if isinstance(index, slice):
            return self.subset(np.arange(len(self))[index])
        k = operator.index(index)
        assert self._source is not None, "These episodes have no rows."
        first, steps = int(self.first_row[k]), int(self.steps[k])
        rows = {name: column[first : first + steps + 1] for name, column in self._source.columns().items()}
        return Episode(rows, bool(self.terminated[k]), bool(self.final_recorded[k]))

    def __iter__(self) -> Iterator[Episode]:
        return (self[k] for k in range(len(self)))

    def subset(self, index: np.ndarray) -> Episodes:
        """The episodes at `index`, over the same rows."""
        arrays = (self.first_row, self.steps, self.terminated, self.final_recorded, self.returns)
        return Episodes(*(array[index] for array in arrays), source=self._source)

    @cached_property
    def contiguous(self) -> bool:
        """Whether the episodes are back to back from row 0, so that transition i of episode e sits at row i + e."""
        return bool((self.first_row == np.cumsum(self.steps + 1) - (self.steps + 1)).all())

    @cached_property
    def n_transitions(self) -> int:
        """Steps of all episodes."""
        return int(self.steps.sum())

    def transition_rows(self) -> np.ndarray:
        """[n_transitions] int64: the row of each transition in the columns, episode after episode."""
        return _ranges(self.first_row, self.steps)

    def rows(self) -> np.ndarray:
        """[n_rows] int64: the row of each step and closing row in the columns, episode after episode."""
        return _ranges(self.first_row, self.steps + 1)


def _ranges(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """`length[0]` numbers from `start[0]`, then `length[1]` from `start[1]`, and so on."""
    shift = start - (np.cumsum(length) - length)
    return np.arange(int(length.sum())) + np.repeat(shift, length)
