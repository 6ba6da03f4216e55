"""Archives of strangers: members of zip files, gzip streams, and arrays as `.npy` has them in either, read into memory.

No file of theirs is ever written, so that a name is only a word and a link only its text. What is left for a hostile archive is to
unpack to more than the memory holds: what comes out is counted by `unpacking`, members that share their bytes each. An archive
within an archive is a member like any, and is not opened.
"""

from __future__ import annotations

import gzip
import lzma
import math
import zipfile
import zlib
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...errors import DataError
from .. import arrays
from ..arrays import Array, existing_file
from .unpacking import Unpacking, counted, needs, unpacking

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
GZIP = b"\x1f\x8b"
DAMAGED = (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)


def is_zip(path: Path) -> bool:
    return head(path, 4) in ZIP


def head(path: Path, n: int, *, unpacked: bool = False) -> bytes:
    """The first `n` bytes of a file, with `unpacked` those inside gzip where it is gzip (as many as a damaged one has).

    A folder, and a file that cannot be opened, has none: telling formats apart does not raise.
    """
    try:
        with path.open("rb") as file:
            start = file.read(n)
            if not unpacked or start[:2] != GZIP:
                return start
            file.seek(0)
            return zlib.decompressobj(31).decompress(file.read(4096 + n), n)
    except (OSError, zlib.error):
        return b""


class Archive:
    """Members of a zip archive by name; of a name that is there twice the last counts, as in the file's own list."""

    def __init__(self, source: str, file: zipfile.ZipFile, now: Unpacking) -> None:
        self.source, self._file, self._now = source, file, now
        self.sizes = {info.filename: info.file_size for info in file.infolist() if not info.is_dir()}

    @property
    def names(self) -> list[str]:
        return list(self.sizes)

    def open(self, name: str) -> IO[bytes]:
        """Open a stream of the member's bytes, which are counted as they come."""
        if name not in self.sizes:
            raise DataError(f"{self.source} has no {name!r}.")
        return counted(self.source, self._file.open(name), self._now)

    def read(self, name: str) -> bytes:
        with damaged(f"{self.source}: {name!r}"), self.open(name) as stream:
            self._now.needs(self.source, self.sizes[name])  # before the first of them
            return stream.read()


@contextmanager
def open_archive(path: Path | str) -> Generator[Archive]:
    path = existing_file(path)
    if not is_zip(path):
        raise DataError(f"{path} is no zip archive.")
    with unpacking(path) as now, damaged(str(path)), zipfile.ZipFile(path) as file:
        yield Archive(str(path), file, now)


@contextmanager
def open_gzip(path: Path | str) -> Generator[IO[bytes]]:
    """Open the bytes of a file, those inside where it is gzip, as a stream."""
    path = existing_file(path)
    with unpacking(path) as now, damaged(str(path)), path.open("rb") as raw:
        if head(path, 2) == GZIP:
            with gzip.GzipFile(fileobj=raw, mode="rb") as inside, counted(str(path), inside, now) as stream:
                yield stream
        else:
            yield raw


def damaged(source: str) -> AbstractContextManager[None]:
    """Raise what reading a damaged archive raises as a DataError that names `source`."""
    return arrays.damaged(source, "an archive", DAMAGED)


def npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, whether it lies by columns, and dtype; the stream is at the first value then."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(stream)


def read_npy(stream: IO[bytes], source: str, size: int | None = None) -> Array:
    """Read an array of numbers from a stream of `size` bytes, where that is known. Raises ValueError where it is none."""
    shape, fortran, dtype = npy_header(stream)
    if dtype.hasobject:
        raise DataError(f"{source} holds Python objects, which are never loaded; save it as an array of numbers.")
    if dtype.kind not in "biuf":
        raise DataError(f"{source} holds {dtype}, not numbers.")
    n_bytes = math.prod(shape) * dtype.itemsize
    if size is not None and n_bytes > size:
        raise DataError(f"{source} is said to be {dtype} of shape {list(shape)}, {n_bytes:,} bytes, and has {size:,}.")
    needs(source, n_bytes)  # whatever the stream is, which counts what comes out of it
    values = np.empty(math.prod(shape), dtype)
    if stream.readinto(values.view(np.uint8)) != n_bytes:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError("it ends before its last value")
    return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)
