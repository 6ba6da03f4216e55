"""Episodes of a dataset: arrays over all of them, and each as an object."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np

from .spec import Spec
from .storage.rows import Table, ranges
from .storage.schema import Kinds
from .transitions import Transition, observations_of

if TYPE_CHECKING:
    from .storage.folder import Folder

Columns = Mapping[str, np.ndarray]


class ColumnSource(Protocol):
    """Where columns come from: memory, a folder that maps its files when they are asked for, or what follows from others."""

    @property
    def kinds(self) -> Kinds:
        """The columns' types and entry shapes."""
        ...

    @property
    def folders(self) -> tuple[Folder, ...]:
        """The dataset folders that it reads; none: all of it is in memory."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether some of it lies in this process's memory only."""
        ...

    def columns(self) -> Columns:
        """The columns, the same ones every time. What is not in memory is mapped."""
        ...

    def table(self, *, in_order: bool) -> Table:
        """The same rows, to be read piece by piece; nothing is mapped or copied first where they are read in order."""
        ...


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
        """T."""
        return len(self.columns["reward"]) - 1

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
        """Its T transitions, each made when it is looked at; the episode itself."""
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
    def rewards(self) -> np.ndarray:
        """[T] float32."""
        return self.columns["reward"][:-1]

    @property
    def terminals(self) -> np.ndarray:
        """[T] float32: 1 for a step that ended the MDP, which only the last one can."""
        return self.columns["terminated"][:-1].astype(np.float32)

    @property
    def transition_count(self) -> int:
        """T."""
        return len(self)

    def size(self) -> int:
        """T."""
        return len(self)

    def compute_return(self) -> float:
        """Undiscounted sum of all T rewards, added up in float64."""
        return float(self.rewards.sum(dtype=np.float64))

    def get_observation_shape(self) -> Any:
        """Shape of one observation; a dict of them where observations are named."""
        return observation_shape({name: column.shape[1:] for name, column in self.columns.items()})

    def get_action_size(self) -> int:
        """Entries of an action, or how many discrete actions there are (in the episode, where there is no dataset to ask)."""
        if self.spec is not None:
            return action_size(self.spec)
        action = self.columns["action"]
        return int(action.max()) + 1 if action.ndim == 1 else int(np.prod(action.shape[1:]))


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
        returns: np.ndarray | Callable[[], np.ndarray],  # the latter where rewards have to be computed first
        source: ColumnSource | None,
        spec: Spec | None = None,
    ) -> None:
        self.first_row, self.steps, self._returns = first_row, steps, returns
        self.terminated, self.final_recorded = terminated, final_recorded
        self._source, self._spec = source, spec

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
        return Episode(rows, bool(self.terminated[k]), bool(self.final_recorded[k]), self._spec)

    def __iter__(self) -> Iterator[Episode]:
        return (self[k] for k in range(len(self)))

    @property
    def returns(self) -> np.ndarray:
        """[E] float64: undiscounted sums of rewards."""
        if not isinstance(self._returns, np.ndarray):
            self._returns = self._returns()
        return self._returns

    def subset(self, index: np.ndarray) -> Episodes:
        """The episodes at `index`, over the same rows."""
        arrays = (self.first_row, self.steps, self.terminated, self.final_recorded)
        returns = self._returns[index] if isinstance(self._returns, np.ndarray) else lambda: self.returns[index]
        return Episodes(*(array[index] for array in arrays), returns=returns, source=self._source, spec=self._spec)

    def over(self, source: ColumnSource, spec: Spec, returns: Callable[[], np.ndarray] | None = None) -> Episodes:
        """The same episodes, of a source with the same rows."""
        arrays = (self.first_row, self.steps, self.terminated, self.final_recorded)
        return Episodes(*arrays, returns=returns or self._returns, source=source, spec=spec)

    @cached_property
    def contiguous(self) -> bool:
        """Whether the episodes are back to back from row 0, so that transition i of episode e sits at row i + e."""
        return bool((self.first_row == np.cumsum(self.steps + 1) - (self.steps + 1)).all())

    @cached_property
    def in_order(self) -> bool:
        """Whether no episode lies before the one that it follows, so that one pass over the rows meets them all."""
        return bool((np.diff(self.first_row) > 0).all())

    @cached_property
    def n_transitions(self) -> int:
        """Steps of all episodes."""
        return int(self.steps.sum())

    def transition_rows(self) -> np.ndarray:
        """[n_transitions] int64: the row of each transition in the columns, episode after episode."""
        return ranges(self.first_row, self.steps)

    def rows(self) -> np.ndarray:
        """[n_rows] int64: the row of each step and closing row in the columns, episode after episode."""
        return ranges(self.first_row, self.steps + 1)


def observation_shape(shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The entry shape of the column `observation`, or a dict of those of `observation/KEY`."""
    if "observation" in shapes:
        return shapes["observation"]
    return {name.removeprefix("observation/"): shape for name, shape in shapes.items() if name.startswith("observation/")}


def action_size(spec: Spec) -> int:
    """Entries of an action, or how many discrete actions there are."""
    return spec.n_actions if spec.discrete else int(np.prod(spec.action.shape, dtype=np.int64))
