"""How much a file of a stranger may unpack to: the one place where what it declares is held against its bytes and the memory.

Whatever makes more of a file than the bytes that it reads (arrays of declared shapes, decompressed streams, decoded images, objects
of Python) says so here before it is made. All that is read for one import counts together, and so do the bytes of all its files.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import psutil

from ...errors import DataError, in_words, size_in

SMALL = 1 << 26  # bytes that are never too many
DEFLATE = 1032  # bytes that deflate makes of one at most
LZ4 = 255  # and LZ4
RATIO = 4000  # times what is stored: Parquet makes some 2,600 bytes of one where numbers stay the same
SHARE = 2  # of the memory one part in so many: most importers copy what they read once, to make room for closing rows
ROW = 16  # bytes that are made for a row of an array besides its own, as flags and places
OBJECTS = 24  # bytes that Python takes for a byte of JSON or msgpack at worst: "[]," is a list of 56 and a reference to it
LIMIT = "D3RAY_UNPACK_LIMIT"
GROUP = Path("/sys/fs/cgroup")  # of the container
_Stream = io.BufferedIOBase | IO[bytes]


class Unpacking:
    """Bytes unpacked from some files so far, and their limit."""

    def __init__(self) -> None:
        self._stored: dict[str, int] = {}  # bytes by file
        self._made = 0
        self.share = SHARE  # an importer sets 1 where it reads into the memory that everything stays in

    def add(self, path: Path) -> None:
        with suppress(OSError):
            self._stored.setdefault(str(path), path.stat().st_size)

    def unpacks(self, source: str, n_bytes: int) -> None:
        """Count bytes that are about to be made of what is read now."""
        self.needs(source, n_bytes)
        self._made += n_bytes

    def needs(self, source: str, n_bytes: int) -> None:
        """Check bytes that are needed for a moment only."""
        if (total := self._made + n_bytes) > SMALL and total > self.limit:
            raise DataError(f"{source} unpacks to {in_words(total)} or more, {self._why(total, self.limit)}")

    def unpacks_in_parts(self, source: str, n_bytes: int) -> None:
        """Check bytes that are made a part at a time: they are held against what is stored alone."""
        most = max(SMALL, RATIO * sum(self._stored.values())) if (said := size_in(LIMIT)) is None else said
        if n_bytes > most:
            raise DataError(f"{source} unpacks to {in_words(n_bytes)} or more, {self._why(n_bytes, most)}")

    @property
    def limit(self) -> int:
        if (said := size_in(LIMIT)) is not None:
            return said
        return max(SMALL, min(RATIO * sum(self._stored.values()), self._memory))

    @property
    def left(self) -> int:
        return max(0, self.limit - self._made)

    @property
    def _memory(self) -> int:
        return self._free // self.share

    @cached_property
    def _free(self) -> int:
        return free_memory()

    def _why(self, total: int, most: int) -> str:
        stored, gigabytes = sum(self._stored.values()), -(-total // 10**9)
        way = f"{LIMIT}={max(gigabytes, 1)}GB allows as much"
        if size_in(LIMIT) is not None:
            return f"and {LIMIT} allows {in_words(most)}."
        if most == max(SMALL, RATIO * stored):
            much = f"{RATIO:,} times that" if most > SMALL else in_words(SMALL)
            return f"and {in_words(stored)} are stored: {much} is the most that is made of it. If you trust the file, {way}."
        part = "half of the memory" if self.share > 1 else "all of the memory"
        said = f"{part} that is free here, is {in_words(self._memory)}"
        return f"and what may be made of it, {said}. Divide it into several files, or use a machine with more memory; {way}."


def free_memory() -> int:
    """Return the memory that can be had: of the machine, and of the container that this process runs in."""
    free = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError, KeyError):  # no container, or no limit: "max"
        known = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        used = int((GROUP / "memory.current").read_text()) - int(known["inactive_file"])
        free = min(free, int((GROUP / "memory.max").read_text()) - used)
    return max(free, 0)


_NOW: ContextVar[Unpacking | None] = ContextVar("unpacking", default=None)


@contextmanager
def unpacking(*paths: Path | str) -> Generator[Unpacking]:
    """Count what is made of files within it, together with a context around it; the bytes of `paths` are stored."""
    outer = _NOW.get()
    now = outer or Unpacking()
    for path in paths:
        now.add(Path(path))
    token = None if outer else _NOW.set(now)
    try:
        yield now
    finally:
        if token is not None:
            _NOW.reset(token)


def unpacks(source: str, n_bytes: int) -> None:
    """Count bytes that are about to be made of what is read now; outside of `unpacking` nothing is counted."""
    if (now := _NOW.get()) is not None:
        now.unpacks(source, n_bytes)


def unpacks_in_parts(source: str, n_bytes: int) -> None:
    if (now := _NOW.get()) is not None:
        now.unpacks_in_parts(source, n_bytes)


def needs(source: str, n_bytes: int) -> None:
    if (now := _NOW.get()) is not None:
        now.needs(source, n_bytes)


def stored(path: Path) -> None:
    """Count the bytes of a file that is opened by other means than those here."""
    if (now := _NOW.get()) is not None:
        now.add(path)


def left() -> int:
    return SMALL if (now := _NOW.get()) is None else now.left


def fits_whole(n_bytes: int) -> bool:
    """Tell whether a file of so many bytes can be read at once, even one that is all zeros and compressed."""
    return n_bytes * DEFLATE <= free_memory() // SHARE


class _Counted(io.RawIOBase):
    """See `counted`."""

    def __init__(self, source: str, stream: _Stream, now: Unpacking, made_of: Callable[[bytes], int]) -> None:
        self._source, self._stream, self._now, self._made_of = source, stream, now, made_of

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read and count. Raises DataError where it has become too much."""
        data = self._stream.read(min(len(buffer), 1 << 20))
        self._now.unpacks(self._source, self._made_of(data))
        buffer[: len(data)] = data
        return len(data)


def counted(source: str, stream: _Stream, now: Unpacking, made_of: Callable[[bytes], int] = len) -> io.BufferedReader:
    """Wrap a stream, with lines and reads of any size; what is `made_of` its bytes is counted as they come, in any thread."""
    return io.BufferedReader(_Counted(source, stream, now, made_of), 1 << 16)
