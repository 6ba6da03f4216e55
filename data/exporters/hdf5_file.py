"""HDF5 files that survive a full disk: libhdf5, told that a write failed, may end the whole process later."""

from __future__ import annotations

import io
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py


class HealthyFile(io.RawIOBase):
    """A new file for h5py whose writes never fail. The first that does is kept in `error`, and what follows stays in memory.

    Whoever writes asks `check` now and then, so that little follows.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("w+b", buffering=0)
        self._at = 0
        self._kept: list[tuple[int, bytes]] = []
        self.error: OSError | None = None

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._end()}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        size, done = len(view), 0
        if self.error is None:
            try:
                self._file.seek(self._at)
                while done < size:
                    done += self._file.write(view[done:])
            except OSError as error:
                self.error = error
        if done < size:
            self._kept.append((self._at + done, bytes(view[done:])))
        self._at += size
        return size

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        self._file.seek(self._at)
        read: int = self._file.readinto(view) or 0
        for start, data in self._kept:
            low, high = max(start, self._at), min(start + len(data), self._at + len(view))
            if low < high:
                view[low - self._at : high - self._at] = data[low - start : high - start]
                read = max(read, high - self._at)
        self._at += read
        return read

    def truncate(self, size: int | None = None, /) -> int:
        size = self._at if size is None else size
        try:
            self._file.truncate(size)
        except OSError as error:  # to make a file longer is to write it
            self.error = self.error or error
        return size

    def flush(self) -> None:
        """Hold nothing back."""

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def _end(self) -> int:
        return max([self._file.seek(0, io.SEEK_END), *(start + len(data) for start, data in self._kept)])


@contextmanager
def new_hdf5(path: Path) -> Generator[tuple[h5py.File, HealthyFile]]:
    """Open a new HDF5 file, and the file below it, whose `check` raises OSError once the disk is full; so does the end."""
    with HealthyFile(path) as under:
        with h5py.File(under, "w") as file:
            yield file, under
        under.check()
