"""A dataset whose observations have a goal beside them, of the same kind as what is reached.

Which goal a step is meant for is drawn in hindsight, while training: until then each step's goal is what it shows itself, so the
goal costs no memory of the host and has the same statistics as what is reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..episodes import Columns, ColumnSource, Episodes
from ..errors import DataError, did_you_mean
from ..folder import Folder
from ..recording import Derivation, Recording
from ..spec import Box, Dict, ObservationSpace, Spec
from ..storage.rows import Table
from ..storage.schema import Kinds

Column = TypeVar("Column")  # an array, or its kind
SEEN, GOAL = "observation", "goal"
ASKED = "desired_goal"  # as gymnasium-robotics calls what an environment asks for


def with_goals(dataset: Recording, part: str | Sequence[int] | None = None) -> Recording:
    """Return the same steps with dict observations that have the key `goal`.

    Observations that were no dict become the key `observation`. Of a dict the key `desired_goal` is left out: what the data were
    meant to reach would tell a policy what they do, whatever goal it is given.

    Args:
        dataset: whose steps.
        part: what of an observation a goal is: None, the whole of it; entries of a vector, by number; or a key of a dict.

    Raises:
        DataError: there is a goal already, or no such part.
    """
    dataset = dataset.snapshot()
    space, names = _with_goal(dataset.spec.observation, part, dataset.name)
    entries = None if part is None or isinstance(part, str) else np.asarray(part, np.int64)
    source = _Aimed(dataset.source, names, entries)
    spec = dataset.spec.model_copy(update={"observation": space})
    return Recording(
        source,
        Episodes(dataset.episodes, source, spec),
        name=dataset.name,
        spec=spec,
        environment=dataset.environment,
        provenance=Derivation("with_goals", {"part": part if part is None or isinstance(part, str) else list(part)}, (dataset,)),
        cuts=dataset.cuts,
    )


def has_goals(spec: Spec) -> bool:
    return isinstance(spec.observation, Dict) and GOAL in spec.observation.spaces


def goal_space(space: ObservationSpace, part: str | Sequence[int] | None = None, name: str = "the data") -> Dict:
    """Return the space of observations beside goals. Raises DataError as `with_goals`."""
    return _with_goal(space, part, name)[0]


def check_goals(dataset: Recording, part: str | Sequence[int] | None, scaler: Any = None) -> None:
    """Raise DataError where goals of the data cannot be compared with what is reached, `part` of an observation.

    They have another shape, or `scaler` (None: there is none), fitted to these data, scales them otherwise.
    """
    spaces = dataset.spec.observation.spaces if isinstance(dataset.spec.observation, Dict) else {}
    key = part if isinstance(part, str) else SEEN
    if key == GOAL or key not in spaces:
        there = ", ".join(name for name in spaces if name != GOAL)
        raise DataError(f"Observations of {dataset.name!r} have goals and no {key!r} beside them: goal_part is one of {there}.")
    entries = None if part is None or isinstance(part, str) else list(part)
    goal, reached = spaces[GOAL], spaces[key]
    if entries and isinstance(reached, Box) and len(reached.shape) == 1 and max(entries) < reached.shape[0]:
        reached = _entries(reached, entries)
    if not isinstance(goal, Box) or not isinstance(reached, Box) or goal.shape != reached.shape:
        shapes = [list(getattr(space, "shape", ())) for space in (goal, reached)]
        raise DataError(
            f"Goals of {dataset.name!r} have the shape {shapes[0]}, and what is reached by goal_part has {shapes[1]}: the two are "
            "compared."
        )
    if scaler is not None:
        affines = scaler.fit(dataset).affines()
        if not _alike(affines.get(f"observation/{GOAL}"), affines.get(f"observation/{key}"), entries):
            raise DataError(
                f"observation_scaler scales the goals of {dataset.name!r} otherwise than what is reached, {key!r}, with which they "
                "are compared: leave it out, or give both keys one with the same numbers."
            )


def _alike(goal: Any, reached: Any, entries: list[int] | None) -> bool:
    """Whether two maps of scalers (None: none) are the same, of the second one those entries."""
    if goal is None or reached is None:
        return goal is reached
    parts = [(getattr(goal, name), getattr(reached, name)) for name in ("scale", "shift")]
    chosen = [(a, b[entries] if entries is not None and b.ndim else b) for a, b in parts]
    return goal.limit == reached.limit and all(a.shape == b.shape and bool((a == b).all()) for a, b in chosen)


def _with_goal(space: ObservationSpace, part: str | Sequence[int] | None, name: str) -> tuple[Dict, dict[str, str]]:
    """The space with a goal, and the column that each of its columns is."""
    if isinstance(space, Dict):
        if GOAL in space.spaces:
            raise DataError(f"Observations of {name!r} have the key 'goal' already.")
        kept = {key: inner for key, inner in space.spaces.items() if key != ASKED}
        if not isinstance(part, str) or part not in kept:
            raise DataError(
                f"Observations of {name!r} are a dict, and a goal is one of its keys, not {part!r}{did_you_mean(str(part), kept)}"
            )
        if not isinstance(goal := space.spaces[part], Box):
            raise DataError(f"A goal is an array, and observations of {name!r} have a {goal.kind} as {part!r}.")
        return Dict(spaces={**kept, GOAL: goal}), {f"observation/{GOAL}": f"observation/{part}"}
    if isinstance(part, str):
        raise DataError(f"Observations of {name!r} are no dict, so a goal is the whole or entries by number, not {part!r}.")
    goal = space
    if part is not None:
        if not part or not isinstance(space, Box) or len(space.shape) != 1 or not all(0 <= k < space.shape[0] for k in part):
            shape = list(getattr(space, "shape", ()))
            raise DataError(f"Observations of {name!r} have the shape {shape}, and a goal was to be its entries {list(part)}.")
        goal = _entries(space, part)
    return Dict(spaces={SEEN: space, GOAL: goal}), {f"observation/{SEEN}": "observation", f"observation/{GOAL}": "observation"}


def _entries(space: Box, part: Sequence[int]) -> Box:
    about = space.model_dump()
    picked = {
        name: tuple(values[k] for k in part)
        for name, values in about.items()
        if isinstance(values, list | tuple) and name != "shape" and len(values) == space.shape[0]
    }
    return Box.model_validate({**about, **picked, "shape": (len(part),)})


_LEFT_OUT = ("observation", f"observation/{ASKED}")  # which has another name, and which has none


class _AimedRows:
    """Rows of a table with a goal column."""

    def __init__(self, table: Table, names: dict[str, str], entries: np.ndarray | None) -> None:
        self._table, self._names, self._entries, self.n = table, names, entries, table.n

    def names(self) -> list[str]:
        return [*(name for name in self._table.names() if name not in _LEFT_OUT), *self._names]

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        return self._part(name, self._table.read(self._names.get(name, name), start, stop))

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        return self._part(name, self._table.take(self._names.get(name, name), rows))

    def _part(self, name: str, values: np.ndarray) -> np.ndarray:
        return values[..., self._entries] if self._entries is not None and name == f"observation/{GOAL}" else values


class _Aimed:
    """A source with a goal column."""

    def __init__(self, source: ColumnSource, names: dict[str, str], entries: np.ndarray | None) -> None:
        self._source, self._names, self._entries = source, names, entries
        self._made: Columns | None = None

    @property
    def kinds(self) -> Kinds:
        return {name: (dtype, self._shape(name, shape)) for name, (dtype, shape) in self._named(self._source.kinds).items()}

    def _shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if self._entries is None or name != f"observation/{GOAL}" else (len(self._entries),)

    @property
    def folders(self) -> tuple[Folder, ...]:
        return self._source.folders

    @property
    def in_memory(self) -> bool:
        return self._source.in_memory

    def columns(self) -> Columns:
        if self._made is None:
            made = self._named(self._source.columns())
            if self._entries is not None:
                made[f"observation/{GOAL}"] = made[f"observation/{GOAL}"][..., self._entries]
            self._made = made
        return self._made

    def table(self, *, in_order: bool) -> Table:
        return _AimedRows(self._source.table(in_order=in_order), self._names, self._entries)

    def in_place(self) -> Table:
        return _AimedRows(self._source.in_place(), self._names, self._entries)

    def _named(self, columns: Mapping[str, Column]) -> dict[str, Column]:
        kept = {name: column for name, column in columns.items() if name not in _LEFT_OUT}
        return {**kept, **{name: columns[old] for name, old in self._names.items()}}
