"""A dataset's rows in blocks of whole episodes, which never lie in memory as a whole, and what a format cannot carry of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..dataset import Dataset
from ..errors import ConfigError
from ..masks import ACTION_MASK
from ..spec import MultiBinary
from ..storage.costs import COST
from ..storage.rows import Rows
from ..storage.shards import plan_shards

BYTES = 1 << 26  # of a block, unless one episode has more

Advance = Callable[[int], object]  # told how many steps more are written


def silent(n_steps: int) -> None:
    del n_steps


@dataclass(frozen=True)
class Block:
    """Episodes `first` … `first + len(steps) - 1`, their columns read when they are asked for."""

    rows: Rows
    start: int  # its first row
    first: int  # its first episode
    first_step: int  # its first step, of all
    steps: np.ndarray  # [E]
    terminated: np.ndarray  # [E]
    final_recorded: np.ndarray  # [E]

    @property
    def n_steps(self) -> int:
        return int(self.steps.sum())

    @property
    def stop_step(self) -> int:
        return self.first_step + self.n_steps

    @cached_property
    def closing(self) -> np.ndarray:
        """Closing rows [E] within the block."""
        return np.cumsum(self.steps + 1) - 1

    @cached_property
    def is_step(self) -> np.ndarray:
        """Steps among the rows, [R] bool."""
        flags = np.ones(self.n_steps + len(self.steps), bool)
        flags[self.closing] = False
        return flags

    def column(self, name: str) -> np.ndarray:
        """Read [R, ...], closing rows included."""
        return self.rows.read(name, self.start, self.start + len(self.is_step))

    def of_steps(self, name: str) -> np.ndarray:
        """Read [N, ...], a row a step."""
        return self.column(name)[self.is_step]

    def following(self, name: str) -> np.ndarray:
        """Read [N, ...], the row after each step, which holds its next observation."""
        return self.column(name)[1:][self.is_step[:-1]]

    def final(self, name: str) -> np.ndarray:
        """Read the closing rows, [E, ...]."""
        return self.column(name)[self.closing]


def blocks(dataset: Dataset, *, bytes_at_once: int = BYTES) -> Iterator[Block]:
    """Yield the dataset's episodes in order, about `bytes_at_once` of them in each block."""
    rows, episodes, kinds = dataset.rows(), dataset.episodes, dataset.kinds
    row_bytes = sum(np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in kinds.values())
    starts = np.cumsum(np.r_[0, episodes.steps + 1])
    first_steps = np.cumsum(np.r_[0, episodes.steps])
    for first, stop in plan_shards(episodes.steps + 1, kinds, max_rows=max(1, bytes_at_once // row_bytes)):
        yield Block(
            rows,
            int(starts[first]),
            first,
            int(first_steps[first]),
            episodes.steps[first:stop],
            episodes.terminated[first:stop],
            episodes.final_recorded[first:stop],
        )


def actions(dataset: Dataset) -> Callable[[Block], np.ndarray]:
    """Return a reader of a block's actions, a row a step; binary ones are booleans, by which importers know them."""
    dtype = np.bool_ if isinstance(dataset.spec.action, MultiBinary) else None
    return lambda block: block.of_steps("action") if dtype is None else block.of_steps("action").astype(dtype)


def observation_columns(dataset: Dataset) -> dict[str, str]:
    """List columns of the observation by the part that they hold, "" where there is one only."""
    names = [name for name in dataset.kinds if name.partition("/")[0] == "observation"]
    return {name.removeprefix("observation").removeprefix("/"): name for name in names}


def info_columns(dataset: Dataset) -> list[str]:
    return [name for name in dataset.kinds if name.startswith("info/")]


def only_array(dataset: Dataset, format: str) -> None:
    """Raise ConfigError for observations of parts where a format has one array."""
    if parts := sorted(set(observation_columns(dataset)) - {""}):
        raise ConfigError(
            f"The observations have parts ({', '.join(parts)}), and {format} holds one array: say format=minari, or parquet."
        )


def final_observations(dataset: Dataset) -> tuple[bool, list[str]]:
    """Return whether to write final observations, and what is lost, for formats that have them for all episodes or none.

    They are written if every truncated episode has one: a repeated last observation would be bootstrapped from. A terminated
    episode without one repeats its last observation, which is never bootstrapped from.
    """
    episodes = dataset.episodes
    cut, known = ~episodes.terminated, episodes.final_recorded
    missing = int(np.sum(cut & ~known))
    if missing:
        lost = int(known.sum())
        note = (
            f"{missing} of {int(cut.sum())} truncated episodes have no final observation, so those of {lost} others are left out."
        )
        return False, [note] if lost else []
    repeated = int(np.sum(~known))
    if repeated and repeated < len(known):
        return True, [f"{repeated} terminated episodes have no final observation; the last one is written again in its place."]
    return not repeated, []


def left_out(columns: Iterable[str]) -> list[str]:
    names = sorted(columns)
    return [f"Left out, having no place in the format: {', '.join(names)}."] if names else []


def others(dataset: Dataset) -> list[str]:
    """List columns that are neither part of a transition, nor `action_mask`, `cost`, `log_prob` or `info/NAME`."""
    own = {"action", "reward", "terminated", "truncated", "closing", COST, "log_prob", ACTION_MASK}
    return [name for name in dataset.kinds if name not in own and name.partition("/")[0] not in ("observation", "info")]
