"""Archives of strangers: members of zip and tar files and gzip streams, read without a file of theirs ever being written.

What a hostile archive can do is refused before a member is read, each in one sentence: names that leave the folder, links and
devices, members that overlap or unfold to more than they could honestly be, thousands of empty members, encryption.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from ...errors import D3rayError, DataError, reason
from ..imported import existing_file

ZIP = (b"PK\x03\x04", b"PK\x05\x06")
GZIP = b"\x1f\x8b"
TAR_MAGIC = slice(257, 262)  # where "ustar" stands

LIBRARY = (OSError, EOFError, ValueError, KeyError, NotImplementedError, RuntimeError)
DAMAGED = (*LIBRARY, zipfile.BadZipFile, zlib.error, tarfile.TarError, lzma.LZMAError)  # what reading a damaged file raises


@dataclass(frozen=True)
class Limits:
    """How far an archive may unfold. Deflate makes up to 1,032 bytes of one, from zeros only; frames of games stay far below."""

    total: int = 1 << 36  # bytes of all members
    ratio: int = 500  # total over the archive's own bytes, once the total is above `small`
    small: int = 1 << 26  # bytes that are never too many
    members: int = 1_000_000
    empty: int = 1_000  # members that hold nothing

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


def is_gzip(path: Path) -> bool:
    """Whether the file begins as a gzip stream does."""
    return head(path, 2) == GZIP


def is_archive(path: Path) -> bool:
    """Whether the file is a zip or a tar archive, the latter also inside gzip."""
    return is_zip(path) or head(path, 512, unpacked=True)[TAR_MAGIC] == b"ustar"


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
    """Members of one archive by name, each checked against the limits when the archive was opened."""

    def __init__(self, source: str, sizes: dict[str, int], file: zipfile.ZipFile | tarfile.TarFile) -> None:
        self.source, self.sizes, self._file = source, sizes, file

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
        if isinstance(self._file, zipfile.ZipFile):
            return self._file.open(name)
        stream = self._file.extractfile(name)
        assert stream is not None  # only regular files are in `sizes`
        return stream

    def read(self, name: str) -> bytes:
        """The member's bytes.

        Raises:
            DataError: there is no such member, or it is cut short or damaged; it is named.
        """
        with damaged(f"{self.source}: {name!r}"), self.open(name) as stream:
            data = stream.read()
        if len(data) != self.sizes[name]:
            raise DataError(f"{self.source}: {name!r} has {len(data)} bytes, and {self.sizes[name]} were announced.")
        return data


@contextmanager
def open_archive(path: Path | str, limits: Limits = LIMITS) -> Generator[Archive]:
    """A zip or tar archive (the latter also inside gzip), once nothing in its list of members is hostile.

    Raises:
        DataError: not there, no archive, damaged, or it has a name that leaves the folder, a link, a device, an encrypted member,
            a name twice, members that overlap, or too much or too many of anything (see `Limits`).
    """
    path = existing_file(path)
    source = str(path)
    with damaged(source), path.open("rb") as raw:
        if is_zip(path):
            with zipfile.ZipFile(raw) as file:
                yield Archive(source, _zip_members(source, file.infolist(), path.stat().st_size, limits), file)
        elif is_archive(path):
            stream = _Gunzip(source, raw, path.stat().st_size, limits) if is_gzip(path) else raw
            with tarfile.open(fileobj=stream, mode="r:") as file:
                yield Archive(source, _tar_members(source, file, limits), file)
        else:
            raise DataError(f"{source} is no zip or tar archive.")


@contextmanager
def open_gzip(path: Path | str, limits: Limits = LIMITS) -> Generator[IO[bytes]]:
    """The bytes of a file, those inside where it is gzip, as a stream that stops at the limits.

    Raises:
        DataError: not there, damaged, or it unfolds to more than `limits` allow; also while the stream is read.
    """
    path = existing_file(path)
    with damaged(str(path)), path.open("rb") as raw:
        if is_gzip(path):
            with _Gunzip(str(path), raw, path.stat().st_size, limits) as stream:
                yield cast("IO[bytes]", stream)
        else:
            yield raw


@contextmanager
def damaged(source: str) -> Generator[None]:
    """What reading a damaged archive raises, as a `DataError` that names `source`."""
    try:
        yield
    except D3rayError:
        raise
    except MemoryError:
        raise DataError(f"{source} does not fit into memory.") from None
    except DAMAGED as error:
        raise DataError(f"{source} is an archive that is cut short or damaged ({reason(error)}).") from None


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


def _zip_members(source: str, infos: Sequence[zipfile.ZipInfo], packed: int, limits: Limits) -> dict[str, int]:
    for info in infos:
        if info.flag_bits & 0x1:
            raise DataError(f"{source}: {info.filename!r} is encrypted; no password can be given.")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise DataError(f"{source}: {info.filename!r} is a link; only plain files are read from an archive.")
    sizes = {info.filename: info.file_size for info in infos if not info.is_dir()}
    _check_members(source, [info.filename for info in infos], [info.file_size for info in infos], limits)
    # Members may share their bytes, which multiplies what they unfold to; together they then have more than the file.
    if sum(info.compress_size for info in infos) > packed:
        raise DataError(f"{source} has members that overlap, as no honest archive does.")
    limits.check(source, sum(sizes.values()), packed)
    return sizes


def _tar_members(source: str, file: tarfile.TarFile, limits: Limits) -> dict[str, int]:
    members: list[tarfile.TarInfo] = []
    for member in file:  # one by one, so that a list without end is left at the limit
        if not member.isreg() and not member.isdir():
            what = "a link" if member.issym() or member.islnk() else "a device"
            raise DataError(f"{source}: {member.name!r} is {what}; only plain files are read from an archive.")
        members.append(member)
        if len(members) > limits.members:
            break
    _check_members(source, [m.name for m in members], [m.size for m in members], limits)
    limits.check(
        source, sum(m.size for m in members), 1 << 62
    )  # of a tar alone nothing unfolds; gzip's ratio is seen as it is read
    return {member.name: member.size for member in members if member.isreg()}


def _check_members(source: str, names: Sequence[str], sizes: Sequence[int], limits: Limits) -> None:
    if len(names) > limits.members:
        raise DataError(f"{source} has more than {limits.members:,} members.")
    if (empty := sizes.count(0)) > limits.empty:
        raise DataError(f"{source} has {empty:,} empty members, and {limits.empty:,} are allowed.")
    for name in names:
        if re.match(r"[/\\]|[A-Za-z]:", name):
            raise DataError(f"{source}: {name!r} is an absolute path; names in an archive are relative.")
        if ".." in re.split(r"[/\\]", name):
            raise DataError(f"{source}: {name!r} leads out of the archive's folder.")
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise DataError(f"{source} has {twice[0]!r} twice.")
