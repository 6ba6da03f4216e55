"""The folder of a loop: its state and a lock that one process holds.

STORAGE/loops/NAME/state.json    `LoopState`, written after each step
STORAGE/loops/NAME/lock          held while a loop runs
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ...data.errors import ConfigError, StorageError
from ...data.storage.files import storage_errors, write_atomically
from ...data.uris import is_remote
from ..record.loop import LoopState

FILE = "state.json"
KEPT = 200  # rounds


def folder_of(storage: str, name: str) -> Path:
    """Where a loop stands. Raises ConfigError for a storage that is no folder."""
    if is_remote(storage):
        raise ConfigError("A loop keeps its state on a disk: storage is a folder, and the log and the dataset may be elsewhere.")
    return Path(storage).expanduser().absolute() / "loops" / name


@contextmanager
def held(folder: Path) -> Generator[None]:
    """Be the only one that runs a loop. Raises ConfigError where another does."""
    with storage_errors("written", folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ConfigError(f"The loop {folder.name!r} runs already: wait for it, or stop it first.") from None
    try:
        yield
    finally:
        lock.release()


def read_state(folder: Path) -> LoopState:
    """Read where a loop stands; one that was never begun stands at its first step. Raises StorageError."""
    file = folder / FILE
    with storage_errors("read", file):
        if not file.exists():
            return LoopState(name=folder.name, begun=time.time())
        content = file.read_bytes()
    try:
        return LoopState.model_validate_json(content)
    except ValueError as error:
        raise StorageError(f"{file} is no state of a loop that this version can read: {str(error).splitlines()[0]}.") from None


def write_state(folder: Path, state: LoopState) -> LoopState:
    with storage_errors("written", folder):
        write_atomically(folder / FILE, state.model_dump_json(indent=1).encode())
    return state
