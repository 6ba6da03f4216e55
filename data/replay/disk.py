"""Columns of a replay buffer in mapped files: what is appended survives the end of the process, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np

from ..errors import DataError, StorageError
from ..storage.files import storage_errors, sync_folder, write_atomically
from ..storage.json_text import parse_json

PLAN, LOCK = "buffer.json", "lock"
_PIECE = 1 << 22  # bytes that are written at a time


class DiskColumns:
    """A folder with one raw file for each array, mapped and shared, and a plan that says what they are.

    A store into a mapped file is in the page cache at once, so it survives the death of the process, SIGKILL included, in the
    order of the program. It reaches the disk when the kernel writes it, or at `flush`: after a power cut what was not flushed may
    be lost or mixed, which `open` then says, see `PersistentReplayBuffer`.

    Args:
        folder: New, or one of these.
        told: What the buffer is, as JSON; a folder that exists has to be of the same.

    Raises:
        StorageError: the folder is in use, cannot be written, or has no room: all of it is reserved at first.
        DataError: it is of another buffer, or a file has another size than it was made with.
    """

    def __init__(self, folder: Path, told: Mapping[str, Any]) -> None:
        self.folder, self._maps = folder, list[mmap.mmap]()
        with storage_errors("written", folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StorageError(f"The replay buffer in {folder} is in use by another process.") from None
            self.is_new = not (folder / PLAN).is_file()
            if not self.is_new:
                self._check(told)
        except BaseException:
            self._unlock()
            raise

    def _check(self, told: Mapping[str, Any]) -> None:
        plan = read_plan(self.folder)
        for name, value in told.items():
            if plan.get(name) != value:
                raise DataError(f"The replay buffer in {self.folder} has another {name}: it was made with {plan.get(name)!r}.")

    def allocate(self, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Map the array of a file: zeros in a new folder, else what is there."""
        path, size = self.folder / f"{quote(name, safe='')}.raw", int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        with storage_errors("written", path), path.open("r+b" if not self.is_new else "w+b") as file:
            if self.is_new:
                _reserve(file, size)
            elif path.stat().st_size != size:
                raise DataError(f"{path} has {path.stat().st_size} bytes; {size} are needed.")
            mapped = mmap.mmap(file.fileno(), size)
        self._maps.append(mapped)
        return np.frombuffer(mapped, dtype).reshape(shape)

    def finish(self, told: Mapping[str, Any]) -> None:
        """Write the plan of a new folder: without it there is no buffer."""
        if self.is_new:
            with storage_errors("written", self.folder / PLAN):
                sync_folder(self.folder)
                write_atomically(self.folder / PLAN, json.dumps(dict(told)).encode())
            self.is_new = False

    def flush(self) -> None:
        with storage_errors("written", self.folder):
            for mapped in self._maps:
                mapped.flush()

    def close(self) -> None:
        """Give the folder to others; the arrays stay mapped as long as somebody has them, and are not to be written any more."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                self.flush()
            self._unlock()

    def __del__(self) -> None:
        self._unlock()

    def _unlock(self) -> None:
        if getattr(self, "_lock", -1) >= 0:
            os.close(self._lock)
            self._lock = -1


def _reserve(file: BinaryIO, size: int) -> None:
    """Fill a new file with zeros that have their room: a store into a mapped file that finds none is a SIGBUS."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(0, size, _PIECE):  # macOS has no such call
        file.write(bytes(min(_PIECE, size - start)))
    file.flush()


def read_plan(folder: Path) -> dict[str, Any]:
    """Read what the buffer in a folder is. Raises StorageError where there is none, DataError where that cannot be read."""
    try:
        plan: Any = parse_json((folder / PLAN).read_bytes())
        return dict(plan)
    except FileNotFoundError:
        raise StorageError(f"There is no replay buffer in {folder}.") from None
    except (ValueError, TypeError) as error:
        raise DataError(f"{folder / PLAN} is damaged.") from error
