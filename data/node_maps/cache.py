"""The cache folder of this machine: bounded, the least recently used entry goes first, and none that a process has mapped.

`D3RAY_CACHE` names the folder (`~/.cache/d3ray` unless set) and `D3RAY_CACHE_LIMIT` its size, such as `50GB` (100 GB unless set).
An entry is a folder under `node_maps/`; who uses one holds a shared lock on its file `in-use` until its arrays are gone, and who
removes one needs that lock alone. Entries are built aside, in `NAME.building`, under `NAME.lock`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from ..errors import StorageError, size_in
from ..storage.files import storage_errors
from ..storage.json_text import parse_json

IN_USE = "in-use"
PLAN = "map.json"
BUILDING = ".building"


def cache_root() -> Path:
    return Path(os.environ.get("D3RAY_CACHE") or "~/.cache/d3ray").expanduser().absolute()


def cache_folder() -> Path:
    """Make the folder of node maps. Raises StorageError where it cannot be made."""
    folder = cache_root() / "node_maps"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder} cannot be made ({error.strerror}); set D3RAY_CACHE to a folder that can.") from None
    return folder


def cache_limit() -> int:
    """Read the limit in bytes. Raises ConfigError where D3RAY_CACHE_LIMIT is no size."""
    said = size_in("D3RAY_CACHE_LIMIT")
    return 10**11 if said is None else said


class Use:
    """Keeps an entry from being removed while its context lasts and until every object given to `until_gone` is garbage."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._count = descriptor, 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._drop()

    def until_gone(self, thing: object) -> None:
        """Count one more object that uses the entry; to be called within the context."""
        self._count += 1
        weakref.finalize(thing, self._drop)

    def _drop(self) -> None:
        self._count -= 1
        if self._count == 0:
            os.close(self._descriptor)


def use(entry: Path) -> Use | None:
    """Mark an entry as used now and in use; None where there is none."""
    path = entry / IN_USE
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if path.stat().st_ino == os.fstat(descriptor).st_ino:  # else it was removed while this waited for the lock
            with suppress(PermissionError):  # of a cache that others own
                os.utime(path)
            return Use(descriptor)
    except FileNotFoundError:
        pass
    os.close(descriptor)
    return None


@contextmanager
def building(entry: Path) -> Generator[None]:
    """Let one process at a time inside; a killed one leaves the lock to the next."""
    with storage_errors("locked", f"{entry}.lock"), FileLock(f"{entry}.lock"):
        yield


def make_room(aside: Path, columns: int, copies: int = 0) -> None:
    """Remove the least recently used entries until a map fits into the limit and onto the disk, and make `aside`.

    It will have `columns` bytes, and needs `copies` more until it is built; other builders count it with both. Raises StorageError
    where what is in use leaves too little room, or the disk has too little.
    """
    limit, cache, needed = cache_limit(), aside.parent, columns + copies
    if needed > limit:
        raise StorageError(f"A node map of {needed:,} bytes is larger than the cache may be ({limit:,}): raise D3RAY_CACHE_LIMIT.")
    with FileLock(f"{cache}/room.lock"):
        _clear_unfinished(cache)
        entries = sorted(_entries(cache), key=lambda entry: entry[0])
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total + needed <= limit and shutil.disk_usage(cache).free >= needed:
                break
            if remove(path):
                total -= size
        free = shutil.disk_usage(cache).free
        if total + needed <= limit and free >= needed:
            with storage_errors("made", aside):
                aside.mkdir()
                (aside / IN_USE).touch()
                (aside / PLAN).write_text(json.dumps({"bytes": needed, "columns": columns}))
            return
    if total + needed > limit:
        raise StorageError(
            f"A node map of {needed:,} bytes has no room in {cache}: maps of {total:,} bytes are in use, of {limit:,} that "
            "D3RAY_CACHE_LIMIT allows."
        )
    raise StorageError(f"A node map of {needed:,} bytes has no room in {cache}: its disk has {free:,} bytes left.")


def under_way() -> tuple[int, int]:
    """Count bytes of all maps that any process is building: those that are there, and those that there will be."""
    there = total = 0
    for aside in cache_folder().glob(f"*{BUILDING}"):
        with suppress(OSError, ValueError, KeyError, TypeError):  # it may be gone by now
            total += int(parse_json((aside / PLAN).read_bytes())["columns"])
            there += sum(file.stat().st_blocks * 512 for file in aside.glob("*.raw"))  # written in any order
    return min(there, total), total


def _entries(cache: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield when each was used, its bytes, its path; one that is being built counts with the bytes that it will have."""
    for path in cache.iterdir():
        try:
            size = int(parse_json((path / PLAN).read_bytes())["bytes"])
            used = (path / IN_USE).stat().st_mtime
        except (OSError, ValueError, KeyError, TypeError):
            if path.is_dir():  # what is no entry can go first
                yield 0.0, 0, path
        else:
            yield used, size, path


def remove(entry: Path) -> bool:
    """Remove an entry unless it is in use or being built."""
    if entry.name.endswith(BUILDING):
        return False
    try:
        descriptor = os.open(entry / IN_USE, os.O_RDONLY)
    except FileNotFoundError:
        shutil.rmtree(entry, ignore_errors=True)
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (entry / IN_USE).unlink()  # first, so that nobody takes what is half removed for whole
        shutil.rmtree(entry, ignore_errors=True)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    finally:
        os.close(descriptor)
    return True


def _clear_unfinished(cache: Path) -> None:
    for path in cache.glob(f"*{BUILDING}"):
        lock = FileLock(str(path).removesuffix(BUILDING) + ".lock", timeout=0)
        try:
            with lock:
                shutil.rmtree(path, ignore_errors=True)
        except Timeout:
            pass
