"""What an exporter writes appears all at once: it is written aside, synced and renamed, and a full disk leaves nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StorageError
from ..storage.claims import new_claim, old_name, remove_dead, scratch_names
from ..storage.files import Place, storage_errors, sync_folder


@contextmanager
def file_aside(target: str | Path, *, overwrite: bool) -> Generator[Path]:
    """Yield a path to write a file to; when the context ends well it is at `target`, a path or a URI, otherwise nowhere."""
    place, name = Place.of_file(target)
    if not overwrite and place.sizes([name])[name] is not None:
        raise StorageError(f"There is a file {target} already; say overwrite=true to replace it.")
    if place.local is not None and (place.local / name).is_dir():
        raise StorageError(f"{target} is a folder; this format is one file.")
    place.make()
    with (
        storage_errors("written", target),
        tempfile.TemporaryDirectory(prefix=scratch_names("file", place.local), dir=place.local) as folder,
    ):
        aside = Path(folder) / name
        yield aside
        with aside.open("rb") as written:  # close() tells nothing of a disk that fills up later
            os.fsync(written.fileno())
        place.put(aside, name)
        if place.local is not None:
            sync_folder(place.local)


@contextmanager
def folder_aside(target: str | Path, *, overwrite: bool, mark: str) -> Generator[Path]:
    """Yield a folder to write into; when the context ends well it is at `target`, a local path, otherwise nowhere.

    An empty folder is replaced and, with `overwrite`, an earlier export, known by its file `mark`. Raises StorageError for anything
    else.
    """
    place = Place(target)
    if place.local is None:
        raise StorageError(
            f"{target} is not on this machine; this format is a folder of files that belong together: write it here."
        )
    path = place.local
    if path.is_file():
        raise StorageError(f"{target} is a file; this format is a folder.")
    if path.is_dir() and any(path.iterdir()):
        if not (path / mark).exists():
            raise StorageError(f"{target} is a folder that holds something else; give one that is new or empty.")
        if not overwrite:
            raise StorageError(f"There is a dataset at {target} already; say overwrite=true to replace it.")
    remove_dead(path.parent)
    aside = path.with_name(f".{path.name}.d3ray-{new_claim()}")
    with storage_errors("written", target):
        try:
            aside.mkdir(parents=True)
            yield aside
            for file in aside.rglob("*"):
                if file.is_file():
                    with file.open("rb") as written:
                        os.fsync(written.fileno())
            old = old_name(aside)
            if path.exists():
                path.rename(old)
            aside.rename(path)
            shutil.rmtree(old, ignore_errors=True)
            sync_folder(path.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
