"""Files that grow: Arrow IPC streams to which one process appends whole messages, and which others read meanwhile.

What `append` has returned from is in the file, whatever becomes of the process: a write has reached the kernel. A message that was
torn as its writer died, which then told nobody of it, is left out by readers.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..storage.files import sync_folder
from .layout import CLOSED, OPEN

_LONGEST = 3600.0  # seconds that a new file may take to get its name
END = b"\xff\xff\xff\xff\0\0\0\0"  # the end of a stream: Arrow's columnar format, "IPC streaming format"


class GrowingFile:
    """A file that this process writes. It holds a lock on it, which ends with the process.

    Raises OSError; what a failed `append` wrote is taken back.
    """

    def __init__(self, path: Path, schema: Any, *, fsync: bool) -> None:
        self.path, self._fsync, self.size = path, fsync, 0
        aside = path.with_name(f".{path.name}")  # so that nobody takes it for a dead writer's before it is locked
        self._file = os.open(aside, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.append(schema.serialize())
            aside.rename(path)
        except OSError:
            os.close(self._file)
            aside.unlink(missing_ok=True)
            raise
        if fsync:
            sync_folder(path.parent)

    def append(self, message: Any) -> None:
        """Append a message; it is in the file when this returns."""
        view, done = memoryview(message), 0
        try:
            while done < len(view):
                done += os.write(self._file, view[done:])
            if self._fsync:
                os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += done

    def close(self) -> None:
        """Write the end, sync and rename."""
        try:
            _finish(self._file, self.path)
        finally:
            os.close(self._file)

    def abandon(self) -> None:
        """Leave the file as that of a dead writer."""
        os.close(self._file)


def _finish(file: int, path: Path) -> None:
    os.write(file, END)
    os.fsync(file)
    path.rename(path.with_suffix(CLOSED))
    sync_folder(path.parent)


def adopt(path: Path) -> bool:
    """Close the file of a dead writer, without a torn message at its end. False where its writer lives, or another was first."""
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    os.ftruncate(file, messages(pa.py_buffer(path.read_bytes())).size)
                    _finish(file, path)
                    return True
        return False
    finally:
        os.close(file)


def adopt_all(folder: Path) -> int:
    """Close all files of dead writers in a folder; return how many there were."""
    for unnamed in folder.glob(f".*{OPEN}"):  # which its writer did not come to give its name, so nobody was told of it
        with suppress(FileNotFoundError):
            if time.time() - unnamed.stat().st_mtime > _LONGEST:
                unnamed.unlink()
    return sum(adopt(path) for path in sorted(folder.glob(f"[!.]*{OPEN}")))


@dataclass(frozen=True)
class Messages:
    """Content of a file.

    Attributes:
        schema: None where even that is torn.
        batches: Whole ones.
        size: Bytes up to the end of the last whole message.
        torn: Bytes after it that are no end of a stream.
    """

    schema: Any
    batches: list[Any]
    size: int
    torn: int


def messages(content: Any, schema: Any = None) -> Messages:
    """Read the whole messages of a buffer, which begins with a schema; where one is given, with a batch of it."""
    reader = pa.BufferReader(content)
    batches, size = list[Any](), 0
    try:
        if schema is None:
            schema = pa.ipc.read_schema(pa.ipc.read_message(reader))
            size = reader.tell()
        while True:
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(reader), schema)
            batch.validate(full=True)  # for a damaged one may say that its texts lie anywhere
            batches.append(batch)
            size = reader.tell()
    except (EOFError, OSError, ValueError):  # pyarrow.ArrowInvalid is a ValueError
        pass
    ended = content.size == size or content.slice(size, min(len(END), content.size - size)).to_pybytes() == END
    return Messages(schema, batches, size, 0 if ended else content.size - size)
