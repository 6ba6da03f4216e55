"""Datasets that lie outside of the folder of datasets: those that experiments learned from, and those of another folder."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ...data.catalog.local import folder_here
from ...data.storage.manifest import MANIFEST
from ..places import is_environment_place
from ..record.status import Status

_MOST = 90  # letters of a name


def elsewhere(root: str, taken: Collection[str], experiments: Iterable[Status], beside: str | None) -> dict[str, Path]:
    """Where datasets lie on this machine that `experiments` learned from, or that are up to two folders deep in `beside`, by name.

    Those that share a name, and one whose name is `taken` in the folder `root`, have the names of the folders above them in front
    of their own: so one that comes later never gets the name of another. `beside` None: in no folder.
    """
    own, found = os.path.realpath(root), dict[str, tuple[str, Path]]()
    for name, place in [*_learned_from(experiments), *(() if beside is None else _within(Path(beside)))]:
        if own not in (real := os.path.realpath(place), os.path.realpath(place.parent)):
            found.setdefault(real, (name, place))
    places = [found[real] for real in sorted(found)]
    depths = [0] * len(places)
    while True:
        names = [_name(name, place, depth) for (name, place), depth in zip(places, depths, strict=True)]
        times = Counter([*names, *taken])
        if max((times[name] for name in names), default=1) == 1:
            return {name: place for name, (_, place) in zip(names, places, strict=True)}
        depths = [depth + (times[name] > 1) for name, depth in zip(names, depths, strict=True)]


def _learned_from(experiments: Iterable[Status]) -> Iterator[tuple[str, Path]]:
    for said in dict.fromkeys(said for one in experiments for said in one.datasets):
        if "://" in said or is_environment_place(said):
            continue
        with suppress(OSError):  # a place that cannot be looked at, as another user's
            place = Path(said) if Path(said).is_dir() else folder_here(said)
            if place is not None and (place / MANIFEST).exists():
                yield said.rstrip("/").rpartition("/")[2], place


def _within(folder: Path) -> Iterator[tuple[str, Path]]:
    for pattern in (f"*/{MANIFEST}", f"*/*/{MANIFEST}"):
        for file in sorted(folder.glob(pattern)):
            if not any(part.startswith(".") for part in file.relative_to(folder).parts):
                yield file.parent.name, file.parent


def _name(name: str, place: Path, depth: int) -> str:
    """Its name behind those of so many folders above it, of letters that names may have; with a hash once there are no more."""
    above = [part for part in place.parent.parts if part != place.anchor]
    said = "-".join([*above[len(above) - min(depth, len(above)) :], name])
    plain = re.sub(r"[^\w.+-]+", "-", said, flags=re.ASCII)[-_MOST:].strip("-_.+") or "dataset"
    if depth <= len(above):
        return plain
    return f"{plain}-{hashlib.sha256(f'{place} {depth}'.encode()).hexdigest()[:8]}"
