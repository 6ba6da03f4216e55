"""Archives of strangers: members of zip files and gzip streams, read into memory.

No file of theirs is ever written, so that a name is only a word and a link only its text. What is left for a hostile archive is to
unfold to more than the memory holds, and that is refused before a member is read.
"""

from __future__ import annotations

import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from ...errors import DataError
from .. import imported
from ..imported import existing_file

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
GZIP = b"\x1f\x8b"
DAMAGED = (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Limits:
    """How far an archive may unfold. Deflate makes up to 1,032 bytes of one, from zeros only; frames of games stay far below."""

    total: int = 1 << 36  # bytes of all members
    ratio: int = 500  # total over the archive's own bytes, once the total is above `small`
    small: int = 1 << 26  # bytes that are never too many

    def check(self, source: str, unfolded: int, packed: int) -> None:
        """Raises DataError where `packed` bytes unfold to more than these limits allow."""
        if unfolded > self.total:
            raise DataError(f"{source} unfolds to {unfolded:,} bytes or more, and {self.total:,} are allowed.")
        if unfolded > self.small and unfolded > self.ratio * packed:
            raise DataError(f"{source} unfolds to more than {self.ratio} times its {packed:,} bytes, as no honest archive does.")


LIMITS = Limits()


def is_zip(path: Path) -> bool:
    """Whether the file begins as a zip archive does."""
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

    def __init__(self, source: str, file: zipfile.ZipFile) -> None:
        self.source, self._file = source, file
        self.sizes = {info.filename: info.file_size for info in file.infolist() if not info.is_dir()}

    @property
    def names(self) -> list[str]:
        """Names of the files in it, in the archive's order; folders are none."""
        return list(self.sizes)

    def open(self, name: str) -> IO[bytes]:
        """A stream of the member's bytes.

        Raises:
            DataError: there is no such member.
        """
        if name not in self.sizes:
            raise DataError(f"{self.source} has no {name!r}.")
        return self._file.open(name)

    def read(self, name: str) -> bytes:
        """The member's bytes.

        Raises:
            DataError: there is no such member, or it is cut short or damaged; it is named.
        """
        with damaged(f"{self.source}: {name!r}"), self.open(name) as stream:
            return stream.read()


@contextmanager
def open_archive(path: Path | str, limits: Limits = LIMITS) -> Generator[Archive]:
    """A zip archive, once it is known to unfold to no more than `limits` allow, members that share their bytes counted each.

    Raises:
        DataError: not there, no archive, damaged, or it unfolds to too much.
    """
    path = existing_file(path)
    if not is_zip(path):
        raise DataError(f"{path} is no zip archive.")
    with damaged(str(path)), zipfile.ZipFile(path) as file:
        limits.check(str(path), sum(info.file_size for info in file.infolist()), path.stat().st_size)
        yield Archive(str(path), file)


@contextmanager
def open_gzip(path: Path | str, limits: Limits = LIMITS) -> Generator[IO[bytes]]:
    """The bytes of a file, those inside where it is gzip, as a stream that stops at the limits.

    Raises:
        DataError: not there, damaged, or it unfolds to more than `limits` allow; also while the stream is read.
    """
    path = existing_file(path)
    with damaged(str(path)), path.open("rb") as raw:
        if head(path, 2) == GZIP:
            with _Gunzip(str(path), raw, path.stat().st_size, limits) as stream:
                yield cast("IO[bytes]", stream)
        else:
            yield raw


def damaged(source: str) -> AbstractContextManager[None]:
    """What reading a damaged archive raises, as a `DataError` that names `source`."""
    return imported.damaged(source, "an archive", DAMAGED)


class _Gunzip(gzip.GzipFile):
    """A gzip stream that stops where it has unfolded to more than is allowed."""

    def __init__(self, source: str, raw: IO[bytes], packed: int, limits: Limits) -> None:
        super().__init__(fileobj=raw, mode="rb")
        self._source, self._packed, self._limits = source, packed, limits

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size >= 0:
            data = super().read(size)
            self._limits.check(self._source, self.tell(), self._packed)
            return data
        out = io.BytesIO()
        while part := self.read(1 << 20):
            out.write(part)
        return out.getvalue()

    def readinto(self, buffer: Any, /) -> int:
        n = super().readinto(buffer)
        self._limits.check(self._source, self.tell(), self._packed)
        return n
