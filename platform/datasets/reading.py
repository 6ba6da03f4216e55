"""Files of logged experience as parts that workers read, and what was decided about each file, put together of its parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ...data.config import Config
from ...data.errors import D3rayError
from ...data.formats.format import Ends, Imported, Plan
from ...data.formats.registry import plan, read
from ...data.formats.untrusted.unpacking import fits_whole
from ...data.spec import Environment, Spec
from ...data.storage.files import storage_errors
from ...data.storage.steps import StepTable
from ...data.uris import is_remote
from .parts import PART_BYTES, Part
from .sources import local_copy, size_and_sha256

_CLIPPED = "actions_clipped"  # in an importer's provenance


@dataclass(frozen=True)
class SourceFile:
    """One file of an import: where it came from and what was decided about it."""

    source: str
    index: int
    bytes: int
    sha256: str
    n_transitions: int
    n_episodes: int
    cuts: int
    notes: list[str]
    provenance: dict[str, Any]
    spec: Spec | None
    environment: Environment | None
    names: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Source:
    """A file or folder to read, and what it is called: the URI where it is a copy of one."""

    path: str
    index: int
    source: str


class Told(Config):
    """Report of a worker on part of a file, beside its episodes. Bytes and SHA-256 are the file's, with its first part."""

    index: int
    bytes: int = 0
    sha256: str = ""
    n_transitions: int
    n_episodes: int
    cuts: int
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    spec: Spec | None
    environment: Environment | None
    names: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Reading:
    """The files of an import, in parts.

    Attributes:
        parts: of all files, in order.
        bytes: of the files.
    """

    parts: list[Part]
    bytes: int
    _plans: Mapping[int, Plan]  # of files that are read in several parts
    _sources: Sequence[Source]

    def files(self, told: Sequence[str], ends: Ends) -> list[SourceFile]:
        """Return the decisions on each file, from reports on the parts, in order, and how all episodes end."""
        by_file: dict[int, list[Told]] = {}
        for text in told:
            by_file.setdefault((said := Told.model_validate_json(text)).index, []).append(said)
        starts = np.cumsum([0, *(sum(said.n_episodes for said in by_file[k]) for k in range(len(by_file)))]).tolist()
        return [self._file(by_file[k], _some(ends, *span)) for k, span in enumerate(pairwise(starts))]

    def _file(self, parts: list[Told], ends: Ended) -> SourceFile:
        first, source = parts[0], self._sources[parts[0].index]
        notes, provenance, found = list(first.notes), first.provenance, self._plans.get(source.index)
        n_transitions, cuts = sum(part.n_transitions for part in parts), sum(part.cuts for part in parts)
        if found is not None:
            provenance = found.provenance
            notes = _added_up([note for part in parts for note in part.notes])
            if _CLIPPED in first.provenance:
                provenance |= {_CLIPPED: sum(part.provenance[_CLIPPED] for part in parts)}
            notes = [*found.notes, *found.said(Ended(ends.steps, ends.terminated, ends.final_recorded, cuts)), *notes]
        return SourceFile(
            source=source.source,
            index=source.index,
            bytes=first.bytes,
            sha256=first.sha256,
            n_transitions=n_transitions,
            n_episodes=len(ends.steps),
            cuts=cuts,
            notes=[note.replace(source.path, source.source) for note in notes],
            provenance=provenance,
            spec=first.spec if all(part.spec == first.spec for part in parts) else None,
            environment=first.environment,
            names=first.names if all(part.names == first.names for part in parts) else {},
        )


def _added_up(notes: Sequence[str]) -> list[str]:
    """Notes of all parts, once each; of those that are alike but for the counts that they begin with, these are added."""
    counts: dict[tuple[str, str], list[int]] = {}
    for note in notes:
        begin = re.match(r"\d+( of \d+)? |", note)
        assert begin is not None
        key = re.sub(r"\d+", "{}", begin[0]), note[begin.end() :]
        found = [int(n) for n in re.findall(r"\d+", begin[0])]
        counts[key] = [a + b for a, b in zip(found, counts.get(key, [0, 0]), strict=False)]
    return [begin.format(*found) + rest for (begin, rest), found in counts.items()]


@dataclass(frozen=True)
class Ended:
    """How episodes end."""

    steps: np.ndarray
    terminated: np.ndarray
    final_recorded: np.ndarray
    cuts: int = 0

    @classmethod
    def of_all(cls, pieces: Sequence[Any]) -> Ended:
        """Those of all pieces or tables."""
        steps, terminated, final_recorded = (
            np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("steps", "terminated", "final_recorded")
        )
        return cls(steps, terminated, final_recorded)


def _some(ends: Ends, start: int, stop: int) -> Ended:
    return Ended(ends.steps[start:stop], ends.terminated[start:stop], ends.final_recorded[start:stop])


def reading(sources: Sequence[Source], format: str | None, options: Mapping[str, Any]) -> Reading:
    """The parts of all files. Of a file that can be read in parts, and is large or may unpack to much, its flags are read for it.

    Raises:
        DataError: a large file cannot be read.
    """
    parts: list[Part] = []
    plans: dict[int, Plan] = {}
    total = 0
    for item in sources:
        size = 0 if is_remote(item.path) else size_of(Path(item.path))
        total += size
        if size <= PART_BYTES and fits_whole(size):
            parts.append(Part(item.source, partial(_read_file, item, format, options), max(size, 1)))
            continue
        with _called(item, item.path):
            found = plan(Path(item.path), format, n_bytes=PART_BYTES, **options)
        if len(found.parts) == 1:
            parts.append(Part(item.source, partial(_read_file, item, format, options), size))
            continue
        plans[item.index] = found
        parts += [
            Part(item.source, partial(_read_part, item, read, k == 0), n)
            for k, (read, n) in enumerate(zip(found.parts, found.bytes, strict=True))
        ]
    return Reading(parts, total, plans, sources)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; 0 of what is not there, or is renamed just now."""
    total = 0
    for file in path.rglob("*") if path.is_dir() else (path,):
        with suppress(FileNotFoundError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def _read_file(item: Source, format: str | None, options: Mapping[str, Any]) -> tuple[StepTable, str]:
    """All of a file or folder, which is copied first where it is elsewhere."""
    with local_copy(item.path) as path, _called(item, str(path)):
        return _told(item, read(path, format, **options), path)


def _read_part(item: Source, read: Callable[[], Imported], is_first: bool) -> tuple[StepTable, str]:
    with _called(item, item.path):
        return _told(item, read(), Path(item.path) if is_first else None)


def _told(item: Source, imported: Imported, whole: Path | None) -> tuple[StepTable, str]:
    size, sha256 = (0, "") if whole is None else imported.read or size_and_sha256(whole)
    steps = imported.steps
    told = Told(
        index=item.index,
        bytes=size,
        sha256=sha256,
        n_transitions=steps.n_transitions,
        n_episodes=steps.n_episodes,
        cuts=steps.cuts,
        notes=tuple(note.replace(str(whole), item.source) for note in imported.notes),
        provenance=imported.provenance,
        spec=imported.spec,
        environment=imported.environment,
        names=dict(imported.names),
    )
    return steps, told.model_dump_json()


@contextmanager
def _called(item: Source, path: str) -> Generator[None]:
    """Errors by the name that the user knows: a copy's means nothing."""
    with storage_errors("read", item.source):
        try:
            yield
        except D3rayError as error:
            raise type(error)(str(error).replace(path, item.source)) from None
