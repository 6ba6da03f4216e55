"""A format as a class: how its files are known and read. Its fields are the options of the importer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from ..config import Config, setting
from ..spec import Environment, Spec
from ..storage.steps import StepTable, steps_from_arrays
from .arrays import Array, apply_time_limit, typed_actions


@dataclass(frozen=True)
class Imported:
    """Steps from a foreign file, and what the importer decided on the way."""

    steps: StepTable
    spec: Spec | None = None  # None: the file says nothing of its spaces, so they are inferred from the arrays
    environment: Environment | None = None
    notes: list[str] = field(default_factory=list[str])  # sentences: what was decided, and what was left out
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])  # JSON values: what else the file says of itself
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])  # of columns' entries, where it says
    read: tuple[int, str] | None = None  # bytes and SHA-256 of what was read, of a folder that others write to; None: all of it


class Ends(Protocol):
    """How episodes end: those of a table, or of all parts of a file."""

    @property
    def steps(self) -> Array: ...
    @property
    def terminated(self) -> Array: ...
    @property
    def final_recorded(self) -> Array: ...
    @property
    def cuts(self) -> int: ...


@dataclass(frozen=True)
class Plan:
    """How a file is read in parts of whole episodes, and what was decided about all of it."""

    parts: tuple[Callable[[], Imported], ...]  # in the file's order; picklable
    bytes: tuple[int, ...] = (0,)  # of each part, about
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[str, ...] = ()  # sentences on the file that no part says
    said: Callable[[Ends], list[str]] = lambda ends: []  # what is said, once all parts are read, of how their episodes end

    def whole(self) -> Imported:
        """Read the one part, with what is said of the file."""
        (read,) = self.parts
        found = read()
        notes = [*self.notes, *self.said(found.steps), *found.notes]
        return replace(found, notes=notes, provenance=self.provenance | found.provenance)


class Format(Config):
    """One importer. A subclass says how to `detect` its files, and either how to `read` one at once or how to `plan` its parts."""

    name: ClassVar[str]
    description: ClassVar[str]

    @classmethod
    def detect(cls, path: Path) -> bool:
        """Recognise a file by first bytes and keys; a folder too, where the format has `parts`."""
        raise NotImplementedError

    @classmethod
    def nearly(cls, path: Path, *, renamed: bool) -> bool:
        """Recognise a file that has most of what steps need (or, where columns are `renamed`, any table), to say what lacks."""
        del path, renamed
        return False

    @classmethod
    def parts(cls, folder: Path) -> list[Path]:
        """List what is read one by one of a folder that is a dataset of this format: files, or the folder; else nothing."""
        del folder
        return []

    def read(self, path: Path) -> Imported:
        """Read all steps of a file; none is dropped."""
        return self.plan(path, None).whole()

    def plan(self, path: Path, n_bytes: int | None) -> Plan:
        """Plan parts of whole episodes, of at most `n_bytes` each where no episode has more; None: one part."""
        del n_bytes
        return Plan((partial(self.read, path),))


RENAME: Any = setting({}, "what this file calls a column or array, by its usual name")


class StepFormat(Format):
    """A format whose files may leave open why an episode ended and what its actions are."""

    timeout_at: int | None = setting(None, "the step of that number in an episode truncates it, whatever the file says", ge=1)
    discrete_action: bool | None = setting(None, "null: what the file says, or whether actions are integers in one column")

    def actions(self, source: str, actions: Array, said: bool | None = None) -> Array:
        """Type actions as `typed_actions` does; `said` is what the file says of them."""
        return typed_actions(source, actions, said if self.discrete_action is None else self.discrete_action)

    def limited(
        self, source: str, terminated: Array, truncated: Array, notes: list[str], *, may_cut: bool = True
    ) -> tuple[Array, Array]:
        """Turn ends at `timeout_at` into truncations, and add what that changed to `notes`; see `apply_time_limit`."""
        if self.timeout_at is None:
            return terminated, truncated
        terminated, truncated, said = apply_time_limit(source, terminated, truncated, self.timeout_at, may_cut=may_cut)
        notes += said
        return terminated, truncated

    def on_ends(self, ends: Ends, *, limits_known: bool) -> list[str]:
        """Say what is notable of the ends of episodes; `limits_known`: the file tells time limits from ends of the task."""
        notes: list[str] = []
        if ends.cuts:
            notes.append(f"{ends.cuts} episodes were cut where next_observations is not the next row.")
        if missing := int((~ends.final_recorded & ~ends.terminated).sum()):
            notes.append(
                f"{missing} of {len(ends.steps)} episodes are truncated without a final observation: "
                "their last step is kept, but nothing is bootstrapped from it."
            )
        longest = int(ends.steps.max())
        suspects = int(((ends.steps == longest) & ends.terminated).sum())
        if not limits_known and self.timeout_at is None and longest > 1 and suspects > 1:
            notes.append(
                f"{suspects} of {len(ends.steps)} episodes end terminated after exactly {longest} steps, the most of any: "
                f"if that is a time limit, import with timeout_at={longest}."
            )
        return notes

    def imported(
        self,
        source: str,
        observations: Any,
        actions: Array,
        rewards: Array,
        terminated: Array,
        truncated: Array,
        *,
        notes: list[str],
        limits_known: bool,
        recorded: Array | None = None,
        spec: Spec | None = None,
        about: dict[str, Any] | None = None,
        **further: Any,
    ) -> Imported:
        """Make an `Imported` of arrays by `steps_from_arrays` (`further` are its arguments), with `notes` and those on ends.

        `recorded` [N] is false where a step has no final observation though one is given; `about` goes to the provenance.
        """
        steps = steps_from_arrays(observations, actions, rewards, terminated, truncated, source=source, **further)
        if recorded is not None:
            steps = replace(steps, final_recorded=steps.final_recorded & recorded[np.cumsum(steps.steps) - 1])
        return Imported(steps, spec, notes=[*notes, *self.on_ends(steps, limits_known=limits_known)], provenance=about or {})


def stretches(sizes: Array, most: int | None) -> list[slice]:
    """Group consecutive episodes whose `sizes` (bytes, or rows) come to `most` at most, or a single larger one; None: all."""
    ends, found, start = np.cumsum(sizes), list[slice](), 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = len(ends) if most is None else max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        found.append(slice(start, stop))
        start = stop
    return found


def row_stretches(end: Array, most: int | None) -> list[slice]:
    """Group rows into whole episodes, which end where `end` [N] is true and at the last row."""
    after = np.append(np.flatnonzero(end[:-1]) + 1, len(end))
    return [
        slice(int(after[one.start - 1]) if one.start else 0, int(after[one.stop - 1]))
        for one in stretches(np.diff(after, prepend=0), most)
    ]


def where(source: object, start: int, unit: str = "row") -> str:
    return f"{source}, from {unit} {start} on" if start else str(source)
