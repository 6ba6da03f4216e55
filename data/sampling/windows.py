"""Which transitions or episodes of a dataset may be drawn, and in which rows they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from ..recording import Recording
from ..storage.episode_table import EpisodeTable
from ..tracing import host_may_look

Until = Literal["observation", "action", "end"]
"""What must be known of what follows a window: the next observation, the next action, or the episode to its end."""


@dataclass(frozen=True, slots=True)
class Place:
    """Drawn items and where they lie in columns, [..., B] int64 each."""

    index: Tensor  # what its source calls it
    rows: Tensor  # its first row
    left: Tensor  # transitions until the episode ends, or is known, this one included; at least 1
    before: Tensor | None = None  # transitions of the episode before this one that are there, where asked for
    step: Tensor | None = None  # its number in the episode, from 0, likewise; larger than `before` where a ring was overwritten
    wrap: tuple[Tensor, int] | None = None  # of a ring: its first row, and its size; None: rows never wrap


class EpisodeOf:
    """The episodes in which numbers of transitions lie.

    A binary search for random numbers waits for memory at every halving. A table says in which episode each stretch of 2^k numbers
    begins, and from there it is a few steps on, which all numbers take together. NumPy takes half of torch's time for few.

    Args:
        ends: [E] int64, rising: numbers below which episodes end.
        device: Where numbers lie.
    """

    def __init__(self, ends: np.ndarray, device: torch.device | str) -> None:
        n = int(ends[-1])
        self._shift = max(n // (4 * len(ends)), 1).bit_length() - 1
        table = np.searchsorted(ends, np.arange(0, n, 1 << self._shift), side="right")
        self._most = int(np.diff(table, append=len(ends) - 1).max())  # ends of episodes in a stretch
        self._ends, self._table = (torch.from_numpy(part).to(device) for part in (ends, table))

    def __call__(self, number: Tensor) -> Tensor:
        """Map numbers [...] int64 to the episodes' places among the ends."""
        if not host_may_look(number) or self._most > 8:
            return torch.searchsorted(self._ends, number, right=True)
        wanted, table, ends = number.numpy(), self._table.numpy(), self._ends.numpy()
        episode = table.take(wanted >> self._shift)
        for _ in range(self._most):
            episode += ends.take(episode) <= wanted
        return torch.from_numpy(episode)


def drawable_steps(episodes: EpisodeTable, td_steps: int, bootstrap: bool, until: Until) -> tuple[np.ndarray, np.ndarray]:
    """[E] int64, how many transitions of each episode may be drawn; [E] bool, at whose ends too little is known of what follows.

    Windows that reach such an end are left out. Arguments as `Windows`'.
    """
    steps, cut = np.asarray(episodes.steps, np.int64), ~np.asarray(episodes.terminated, bool)
    blind = cut if until == "action" else cut & ~np.asarray(episodes.final_recorded, bool) & bootstrap
    return np.where(blind, np.maximum(steps - td_steps, 0), steps), blind


class Windows:
    """Which transitions of a dataset may be drawn, and where they lie: O(episodes) memory, whatever the number of steps.

    Args:
        dataset: Where episodes lie.
        td_steps: n of the n-step return.
        bootstrap: Whether what is drawn looks at the next observation. Windows that end at a truncation whose final observation
            is missing are then left out, for there is nothing to bootstrap from.
        until: With "action" windows that end at any truncation are left out, for no action follows them.
        device: Where the arithmetic runs.

    Attributes:
        n: Transitions that may be drawn.
        size: Names of transitions lie below it.
        drawable: [E] int64, how many transitions of each episode may be drawn.
    """

    def __init__(
        self,
        dataset: Recording,
        td_steps: int = 1,
        *,
        bootstrap: bool = True,
        until: Until = "observation",
        device: torch.device | str = "cpu",
    ) -> None:
        episodes = dataset.episodes
        steps = np.asarray(episodes.steps, np.int64)
        self.drawable, blind = drawable_steps(episodes, td_steps, bootstrap, until)
        ends = np.cumsum(self.drawable)
        self.n = int(ends[-1]) if len(ends) else 0
        if self.n == 0:
            followed = " and that an action, or a terminal, follows" if until == "action" else ""
            raise DataError(f"The dataset {dataset.name!r} has no transition that can be drawn with td_steps={td_steps}{followed}.")
        self.size, first = self.n, np.asarray(episodes.first_row, np.int64)
        self._episode = EpisodeOf(ends, device)
        parts = (first - (ends - self.drawable), first + steps - blind, first)
        self._offset, self._closing, self._first = (
            torch.from_numpy(np.array(part)).to(device)  # copied, for those of an opened folder are read-only
            for part in parts
        )

    def locate(self, index: Tensor, *, before: bool = False) -> Place:
        episode = self._episode(index)
        rows = index + _look_up(self._offset, episode)
        step = rows - _look_up(self._first, episode) if before else None
        return Place(index, rows, _look_up(self._closing, episode) - rows, step, step)

    at = locate  # a transition is called by its number

    def all(self) -> np.ndarray:
        return np.arange(self.n)


class Runs:
    """The episodes of a dataset as what may be drawn, O(episodes) memory; members as those of `Windows`.

    Args:
        dataset: Where episodes lie.
        bootstrap: Whether the last step of a truncated episode whose final observation is missing is left out.
        device: Where the arithmetic runs.

    Attributes:
        longest: Steps of the longest.
    """

    def __init__(self, dataset: Recording, *, bootstrap: bool, device: torch.device | str = "cpu") -> None:
        episodes = dataset.episodes
        blind = ~(np.asarray(episodes.terminated) | np.asarray(episodes.final_recorded)) & bootstrap
        lengths = np.asarray(episodes.steps, np.int64) - blind
        self._chosen = np.flatnonzero(lengths)
        self.n, self.size, self.longest = len(self._chosen), len(lengths), int(lengths.max(initial=0))
        if self.n == 0:
            raise DataError(f"The dataset {dataset.name!r} has no episode that can be drawn.")
        parts = (self._chosen, np.ascontiguousarray(episodes.first_row, np.int64), lengths)
        self._numbers, self._first, self._lengths = (torch.from_numpy(part).to(device) for part in parts)

    def locate(self, number: Tensor, *, before: bool = False) -> Place:
        """Locate numbers [...], counted over the episodes that may be drawn."""
        return self.at(self._numbers[number], before=before)

    def at(self, episode: Tensor, *, before: bool = False) -> Place:
        step = torch.zeros_like(episode) if before else None
        return Place(episode, self._first[episode], self._lengths[episode], step, step)

    def all(self) -> np.ndarray:
        return self._chosen


def _look_up(column: Tensor, at: Tensor) -> Tensor:
    """Index a column [n], in half of the usual time."""
    return column.index_select(0, at.reshape(-1)).reshape(at.shape)
