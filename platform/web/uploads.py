"""Files that come in from browsers: each lies under a random name until all of it is here and it becomes a dataset's."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import anyio

from ...data.errors import ConfigError, StorageError, in_words, reason
from .records import Records, Upload

BROKEN_SECONDS, WHOLE_SECONDS = 2 * 86400, 7 * 86400  # that one is kept which nobody goes on with, or brings into a dataset
EACH, MOST, FILES = 20, 60, 2000  # of a person, and of all, that are coming in; of all that lie here
_SPARE = 1 << 30  # bytes of the disk that uploads leave free
_MOST_NAME = 100
_AT_ONCE = 4


class Uploads:
    """Those of a folder in which files lie while they come in, of so many bytes at most."""

    def __init__(self, folder: Path, records: Records, most: int) -> None:
        self.folder, self.records, self.most = folder, records, most
        self.threads = anyio.CapacityLimiter(_AT_ONCE)  # that write what comes in
        self._changed = threading.RLock()  # what there is: whoever begins one sees what all before took
        self._written = set[str]()
        folder.mkdir(parents=True, exist_ok=True)
        self._forget_old()

    def begin(self, name: str, size: int, person: str) -> Upload:
        """A new one, for all of which there is room.

        Raises ConfigError: it is too large, or too many of the person's are coming in; StorageError: the disk has no room beside
        what is coming in, or too many are.
        """
        name = plain_name(name)
        if not size:
            raise ConfigError(f"{name} is empty: there is nothing to bring in.")
        if size > self.most:
            raise ConfigError(f"{name} has {in_words(size)}; this server takes files of {in_words(self.most)} at most.")
        with self._changed:
            self._forget_old()
            there = self.all()
            coming = [(one, here) for one, here in there if here < one.size]
            if sum(one.person == person for one, _ in coming) >= EACH:
                raise ConfigError(f"{EACH} files of yours are coming in: go on with these first, or remove some.")
            if sum(one.person == person for one, _ in there) >= FILES // 2:
                raise ConfigError(f"{FILES // 2:,} files of yours are here: bring them into datasets first, or remove some.")
            if len(coming) >= MOST or len(there) >= FILES:
                raise StorageError("Too many files are coming in to this server: try again once some have become datasets.")
            kept = sum(one.size - here for one, here in coming)
            free = max(shutil.disk_usage(self.folder).free - _SPARE - kept, 0)
            if size > free:
                beside = f" beside {in_words(kept)} that are coming in" if kept else ""
                raise StorageError(f"{name} has {in_words(size)}, and the server's disk has room for {in_words(free)}{beside}.")
            made = Upload(secrets.token_hex(16), name, size, time.time(), person)
            self.records.add_upload(made)  # first, so that no file is there of which nobody knows
            self.file(made.id).touch(mode=0o600)
        return made

    def file(self, id: str) -> Path:
        return self.folder / id

    def all(self) -> list[tuple[Upload, int]]:
        """All of them, with the bytes that are here, those first that were begun first."""
        found = [(one, self._size(one.id)) for one in self.records.uploads()]
        return [(one, here) for one, here in found if here is not None]

    def find(self, id: str) -> tuple[Upload, int] | None:
        """One of them, with the bytes that are here."""
        upload = self.records.upload(id)
        here = None if upload is None else self._size(id)
        return None if upload is None or here is None else (upload, here)

    def _size(self, id: str) -> int | None:
        try:
            return self.file(id).stat().st_size
        except FileNotFoundError:  # it has just become a dataset's, or was removed
            return None

    @contextmanager
    def alone(self, id: str) -> Generator[bool]:
        """Lock an upload; yields False if it is already locked."""
        mine = id not in self._written
        self._written.add(id)
        try:
            yield mine
        finally:
            if mine:
                self._written.discard(id)

    def append(self, id: str, chunk: BinaryIO) -> None:
        """Adds a chunk to what is here, which is on the disk when this ends.

        Raises StorageError: it cannot be written, or is no more.
        """
        chunk.seek(0)
        try:
            with self.file(id).open("r+b") as file:
                file.seek(0, os.SEEK_END)
                shutil.copyfileobj(chunk, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(f"The file cannot be written: {reason(error)}.") from None

    def take(self, ids: list[str], folder: Path) -> list[Path]:
        """Moves files that are all here into a folder, under their own names.

        Raises ConfigError: one is not all here, or there is no such, or two are called alike.
        """
        with self._changed:
            found = [self._whole(id) for id in ids]
            if len({one.name for one in found}) < len(found):
                raise ConfigError("Two of these files have the same name; rename one of them.")
            folder.mkdir(parents=True, exist_ok=True)
            for one in found:
                self.file(one.id).replace(folder / one.name)
                self.records.forget_upload(one.id)
        return [folder / one.name for one in found]

    def _whole(self, id: str) -> Upload:
        found = self.find(id)
        if found is None or found[0].size != found[1]:
            raise ConfigError("This file has not come in yet: choose it again, and it goes on where it was.")
        return found[0]

    def delete(self, id: str) -> None:
        """Forgets it, and deletes what is here of it."""
        with self._changed:
            if self.records.upload(id) is not None:
                self.file(id).unlink(missing_ok=True)
                self.records.forget_upload(id)

    def until(self, upload: Upload) -> float:
        """When it is deleted, if nobody goes on with it or brings it into a dataset."""
        try:
            about = self.file(upload.id).stat()
        except FileNotFoundError:
            return 0.0
        return max(upload.begun, about.st_mtime) + (WHOLE_SECONDS if about.st_size == upload.size else BROKEN_SECONDS)

    def _forget_old(self) -> None:
        for one in self.records.uploads():
            if self.until(one) < time.time():
                self.delete(one.id)


def plain_name(name: str) -> str:
    """A file's name without folders and without characters that mean something to somebody."""
    last = re.split(r"[\\/]", name)[-1]
    return re.sub(r"[^\w.+-]+", "_", last).lstrip(".-")[-_MOST_NAME:] or "file"
