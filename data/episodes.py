"""Episodes of a dataset: arrays over all of them, and each as an object, as is each of their transitions.

A transition is an episode and a number: nothing of it is stored. Training does not come this way; samplers gather rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np

from .masks import ACTION_MASK
from .spec import Spec
from .storage.episode_table import EpisodeTable
from .storage.rows import Columns, Table
from .storage.schema import Kinds
from .storage.steps import StepTable

if TYPE_CHECKING:
    from .folder import Folder


class ColumnSource(Protocol):
    """Where columns come from: memory, a folder that maps its files when they are asked for, or what follows from others."""

    @property
    def kinds(self) -> Kinds: ...

    @property
    def folders(self) -> tuple[Folder, ...]:
        """The dataset folders that it reads; none where all of it is in memory."""
        ...

    @property
    def in_memory(self) -> bool:
        """True where some of it lies in this process's memory only."""
        ...

    def columns(self) -> Columns:
        """Return the columns, the same ones every time. What is not in memory is mapped."""
        ...

    def table(self, *, in_order: bool) -> Table:
        """Open the rows to be read piece by piece; nothing is mapped or copied first where they are read in order."""
        ...

    def in_place(self) -> Table:
        """Return the same rows for reading in any order where they are stored; folders are not mapped, copied or verified first.

        Raises DataError if the data is compressed.
        """
        ...


class Transition:
    """Transition t of an episode of T.

    d3ray's rewards are in the row of their action. So `reward` is what came of `action`, and what is learned from is
    (observation, action, reward, next_observation, terminal). `next_reward` is that of the *next* action, and 0 at the end.
    (In d3rlpy's of 2020 rewards are one row later: what is `next_reward` there is `reward` here.)
    """

    __slots__ = ("episode", "index")

    def __init__(self, episode: Episode, index: int) -> None:
        self.episode, self.index = episode, index  # index: t, from 0 to T - 1

    @property
    def observation(self) -> Any:
        """The observation, or a dict of its parts."""
        return observations_of(self.episode.columns, self.index)

    @property
    def action(self) -> Any:
        """The action: an array, or an integer."""
        return self.episode.columns["action"][self.index]

    @property
    def reward(self) -> float:
        """The reward of that action."""
        return float(self.episode.columns["reward"][self.index])

    @property
    def next_observation(self) -> Any:
        """The next observation; it repeats `observation` where the final one was not recorded."""
        return observations_of(self.episode.columns, self.index + 1)

    @property
    def next_action(self) -> Any:
        """The next action; zeros at the end of the episode."""
        return self.episode.columns["action"][self.index + 1]

    @property
    def next_reward(self) -> float:
        """The reward of `next_action`; 0 at the end of the episode."""
        return float(self.episode.columns["reward"][self.index + 1])

    @property
    def terminal(self) -> float:
        """1 where this step ended the MDP, else 0. A recording that was cut is no terminal."""
        return float(self.episode.columns["terminated"][self.index])

    @property
    def prev_transition(self) -> Transition | None:
        """The transition before it in the episode, or None."""
        return Transition(self.episode, self.index - 1) if self.index else None

    @property
    def next_transition(self) -> Transition | None:
        """The transition after it in the episode, or None."""
        return Transition(self.episode, self.index + 1) if self.index + 1 < len(self.episode) else None

    def get_observation_shape(self) -> Any:
        return self.episode.get_observation_shape()

    def get_action_size(self) -> int:
        return self.episode.get_action_size()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transition):
            return NotImplemented
        return self.index == other.index and _address(self) == _address(other)

    def __hash__(self) -> int:
        return hash((self.index, _address(self)))

    def __repr__(self) -> str:
        return f"Transition({self.index + 1} of {len(self.episode)}, reward {self.reward:g})"


def _address(transition: Transition) -> int:
    """Return where the episode's rewards lie, so that two views of one transition are equal."""
    return transition.episode.columns["reward"].__array_interface__["data"][0]


@dataclass(frozen=True, eq=False)
class Episode(Sequence[Transition]):
    """One episode of T transitions, as views of the dataset's columns. It is also the sequence of its transitions.

    The reward in a row is that of the action in the same row, so T transitions have T rewards and all of them count in
    the return. (d3rlpy's of 2020 hold them one row later, and leave out the first.)
    """

    columns: dict[str, np.ndarray]  # T + 1 rows each
    terminated: bool  # the MDP ended: nothing is bootstrapped past the last step
    final_recorded: bool  # false: the last row of `observations` repeats the one before it
    spec: Spec | None = None  # of the dataset

    def __len__(self) -> int:
        return len(self.columns["reward"]) - 1

    def __repr__(self) -> str:
        end = "terminated" if self.terminated else "truncated"
        return f"Episode({len(self)} steps, return {self.compute_return():g}, {end})"

    @overload
    def __getitem__(self, index: int) -> Transition: ...
    @overload
    def __getitem__(self, index: slice) -> list[Transition]: ...
    def __getitem__(self, index: int | slice) -> Transition | list[Transition]:
        if isinstance(index, slice):
            return [Transition(self, k) for k in range(*index.indices(len(self)))]
        k = operator.index(index)
        if not -len(self) <= k < len(self):
            raise IndexError(f"The episode has {len(self)} transitions; there is no number {k}.")
        return Transition(self, k % len(self))

    def __iter__(self) -> Iterator[Transition]:
        return (Transition(self, k) for k in range(len(self)))

    @property
    def transitions(self) -> Sequence[Transition]:
        """Its T transitions, each made when it is looked at."""
        return self

    @property
    def observations(self) -> Any:
        """[T + 1, ...], or a dict of such arrays; the last one is the final observation."""
        return observations_of(self.columns, slice(None))

    @property
    def actions(self) -> np.ndarray:
        """[T, A] float32, [T] int64, or another of `Spec`'s kinds."""
        return self.columns["action"][:-1]

    @property
    def action_masks(self) -> np.ndarray | None:
        """[T + 1, n] uint8: 1 where an action was legal, the last row at the final observation. None where the data do not tell."""
        return self.columns.get(ACTION_MASK)

    @property
    def rewards(self) -> np.ndarray:
        """[T] float32."""
        return self.columns["reward"][:-1]

    @property
    def terminals(self) -> np.ndarray:
        """[T] float32: 1 for a step that ended the MDP, which only the last one can."""
        return self.columns["terminated"][:-1].astype(np.float32)

    @property
    def transition_count(self) -> int:
        return len(self)

    def size(self) -> int:
        return len(self)

    def compute_return(self) -> float:
        """Sum all T rewards, undiscounted, in float64."""
        return float(self.rewards.sum(dtype=np.float64))

    def get_observation_shape(self) -> Any:
        """Return the shape of one observation, or a dict of shapes."""
        return observation_shape({name: column.shape[1:] for name, column in self.columns.items()})

    def get_action_size(self) -> int:
        """Count the entries of an action, or the discrete actions (of the episode, where there is no dataset to ask)."""
        if self.spec is not None:
            return action_size(self.spec)
        action = self.columns["action"]
        return int(action.max()) + 1 if action.ndim == 1 else int(np.prod(action.shape[1:]))


class Episodes(EpisodeTable, Sequence[Episode]):
    """A sequence of episodes over the columns of a source that is also the arrays of an `EpisodeTable`."""

    def __init__(
        self,
        table: EpisodeTable | StepTable,
        source: ColumnSource,
        spec: Spec | None = None,
        returns: Callable[[], np.ndarray] | None = None,  # None: the table's
    ) -> None:
        told = returns or (table.returns if isinstance(table, StepTable) else table.returns_of(slice(None)))
        super().__init__(table.first_row, table.steps, table.terminated, table.final_recorded, told)
        self._source, self._spec = source, spec

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> Episodes: ...
    def __getitem__(self, index: int | slice) -> Episode | Episodes:
        if isinstance(index, slice):
            return self.subset(np.arange(len(self))[index])
        k = operator.index(index)
        first, steps = int(self.first_row[k]), int(self.steps[k])
        rows = {name: column[first : first + steps + 1] for name, column in self._source.columns().items()}
        return Episode(rows, bool(self.terminated[k]), bool(self.final_recorded[k]), self._spec)

    def __iter__(self) -> Iterator[Episode]:
        return (self[k] for k in range(len(self)))

    def subset(self, index: np.ndarray) -> Episodes:
        """Choose the episodes at `index`, over the same rows."""
        arrays = (self.first_row, self.steps, self.terminated, self.final_recorded)
        table = EpisodeTable(*(array[index] for array in arrays), returns=self.returns_of(index))
        return Episodes(table, self._source, self._spec)


def observations_of(columns: Mapping[str, np.ndarray], rows: Any) -> Any:
    """Take rows of the column `observation`, or a dict of those of each `observation/KEY`."""
    if "observation" in columns:
        return columns["observation"][rows]
    return {name.removeprefix("observation/"): c[rows] for name, c in columns.items() if name.startswith("observation/")}


def observation_shape(shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return the entry shape of the column `observation`, or a dict of those of `observation/KEY`."""
    if "observation" in shapes:
        return shapes["observation"]
    return {name.removeprefix("observation/"): shape for name, shape in shapes.items() if name.startswith("observation/")}


def action_size(spec: Spec) -> int:
    """Count the entries of an action, or the discrete actions."""
    return spec.n_actions if spec.discrete else int(np.prod(spec.action.shape, dtype=np.int64))
