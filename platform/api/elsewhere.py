"""Datasets that lie outside of the folder of datasets: those that experiments learned from, and those of another folder."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from ...data.catalog.local import folder_here
from ...data.storage.manifest import MANIFEST
from ..places import is_environment_place
from .told import Status

_MOST = 90  # letters of a name


def elsewhere(root: str, taken: Collection[str], experiments: Iterable[Status], beside: str | None) -> dict[str, Path]:
    """Where they lie on this machine, by name. One whose name is taken has those of the folders above it in front of its own.

    Args:
        root: The folder of datasets.
        taken: Names of what is in it.
        experiments: What these learned from is found.
        beside: A further folder, looked through two folders deep; None: none.
    """
    known, found = {os.path.realpath(root)}, dict[str, Path]()
    for name, place in [*_learned_from(experiments), *(() if beside is None else _within(Path(beside)))]:
        if known.isdisjoint({os.path.realpath(place), os.path.realpath(place.parent)}):
            known.add(os.path.realpath(place))
            found[_name(name, place, {*taken, *found})] = place
    return found


def _learned_from(experiments: Iterable[Status]) -> Iterator[tuple[str, Path]]:
    for said in dict.fromkeys(said for one in experiments for said in one.datasets):
        if "://" in said or is_environment_place(said):
            continue
        place = Path(said) if Path(said).is_dir() else folder_here(said)
        if place is not None and (place / MANIFEST).exists():
            yield said.rstrip("/").rpartition("/")[2], place


def _within(folder: Path) -> Iterator[tuple[str, Path]]:
    for pattern in (f"*/{MANIFEST}", f"*/*/{MANIFEST}"):
        for file in sorted(folder.glob(pattern)):
            if not any(part.startswith(".") for part in file.relative_to(folder).parts):
                yield file.parent.name, file.parent


def _name(name: str, place: Path, taken: Collection[str]) -> str:
    """The first that is free, of letters that names may have."""
    parts = [name, *reversed(place.parent.parts)]
    names = ["-".join(reversed(parts[:n])) for n in range(1, len(parts) + 1)]
    plain = [re.sub(r"[^\w.+-]+", "-", one, flags=re.ASCII).strip("-_.+")[-_MOST:] or "dataset" for one in names]
    return next((one for one in plain if one not in taken), plain[-1])
