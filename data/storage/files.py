"""Folders of files, local or behind a URI that a store opens, with atomic writes and errors in one sentence."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, Self

from ..errors import D3rayError, StorageError
from .claims import scratch_names
from .stores.arrow_fs import open_arrow
from .stores.base import Readable, Store, side_by_side
from .stores.s3 import open_s3

PIECES = ".d3ray-pieces-"  # begins the name of a folder of pieces; a writer's mark ends it


@contextmanager
def storage_errors(verb: str, what: object) -> Generator[None]:
    """Turn an OSError into a StorageError: "`what` cannot be `verb`: why". A full disk is called so."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{what} cannot be {verb}: {_reason(error)}.") from error


def _reason(error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "there is no space left on its disk"
    if error.errno == errno.EFBIG:
        return "the file would be larger than is allowed here"
    known = error.errno and os.strerror(error.errno)
    return (known[:1].lower() + known[1:]) if known else str(error).splitlines()[0].rstrip(".")


class Place:
    """A folder. `local` is its path where it is on this machine; elsewhere it is read and written through a store.

    Args:
        where: path or URI.
        mark: 8 hexadecimal digits in the names of the dataset files that one write makes there; none where nothing is replaced.

    Raises:
        StorageError: the URI is of a kind that no store knows, or its server cannot be used.
    """

    def __init__(self, where: str | Path, mark: str = "") -> None:
        text, self.mark = str(where), mark
        scheme, found, rest = text.partition("://")
        self.local: Path | None = None
        self._store: Store
        if found and scheme != "file":
            self._store, self._root = open_s3(text) if scheme == "s3" else open_arrow(text)
            self.name = text.rstrip("/")
        else:
            self.local = Path(rest if found else text).expanduser().absolute()
            self.name = str(self.local)

    @classmethod
    def of_file(cls, where: str | Path) -> tuple[Self, str]:
        """Return the folder of a file, and the file's name; options of a URI are the folder's."""
        text = str(where)
        place, mark, options = text.partition("?") if "://" in text else (text, "", "")
        folder, above, name = place.rstrip("/").rpartition("/")
        if folder.endswith(":/"):
            raise StorageError(f"{text} is no file in a folder.")
        return cls((folder or ("/" if above else ".")) + mark + options), name

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return Place, (self.name, self.mark)

    def address(self, name: str) -> str:
        """Write the address of something in the folder: of a URI, `s3://bucket/folder/name?region=…`."""
        if self.local is not None:
            return f"{self.name}/{name}"
        place, mark, options = self.name.partition("?")
        return f"{place}/{name}{mark}{options}"

    def names(self) -> list[str]:
        """List what is in the folder; nothing where there is none."""
        with storage_errors("listed", self.name):
            if self.local is not None:
                return sorted(path.name for path in self.local.iterdir()) if self.local.is_dir() else []
            folders, files = self._store.list(self._root)
            return sorted({*folders, *(file.key.rpartition("/")[2] for file in files)})

    def tree(self) -> list[str]:
        """List the files at any depth that are not hidden, by their paths below the folder; none where there is none."""
        with storage_errors("listed", self.name):
            if self.local is not None:
                below = [path.relative_to(self.local) for path in self.local.rglob("*") if path.is_file()]
            else:
                below = [PurePosixPath(found.key).relative_to(self._root) for found in self._store.walk(self._root)]
        return sorted(path.as_posix() for path in below if not any(part.startswith(".") for part in path.parts))

    def sizes(self, names: Iterable[str]) -> dict[str, int | None]:
        """Return bytes of each file; None where it is missing."""
        if self.local is not None:
            return {name: _size(self.local / name) for name in names}
        wanted = list(names)
        with storage_errors("read", self.name):
            looked = self._store.look([self._at(name) for name in wanted])
        return {name: None if found is None else found.size for name, found in zip(wanted, looked, strict=True)}

    def read(self, name: str) -> bytes | None:
        """Read a small file; None where it is missing."""
        with storage_errors("read", self.address(name)):
            try:
                return (self.local / name).read_bytes() if self.local is not None else self._store.read(self._at(name))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file that is whole or not there: aside and renamed, or in one PUT."""
        with storage_errors("written", self.address(name)):
            if self.local is not None:
                write_atomically(self.local / name, content)
            else:
                self._store.write(self._at(name), content)

    def touch(self, name: str) -> None:
        if self.local is None:
            self.write(name, b"")
        else:
            with storage_errors("written", self.address(name)):
                (self.local / name).touch()

    def put(self, file: Path, name: str) -> None:
        with storage_errors("written", self.address(name)):
            if self.local is not None:
                file.replace(self.local / name)
            else:
                self._store.upload(file, self._at(name))
                file.unlink()

    def open(self, name: str) -> Readable:
        """Open a file to be read in pieces. Raises StorageError."""
        with storage_errors("opened", self.address(name)):
            if self.local is not None:
                import pyarrow as pa

                return pa.OSFile(str(self.local / name))
            return self._store.open(self._at(name))

    def fetch(self, name: str, target: Path) -> None:
        """Copy a file of a remote folder to a local one. Raises FileNotFoundError where it is missing."""
        try:
            self._store.download(self._at(name), target)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageError(f"{self.address(name)} cannot be copied to {target}: {_reason(error)}.") from error

    @contextmanager
    def as_local(self) -> Generator[Path]:
        """Yield the folder on this machine: itself, or a copy for as long as the context lasts."""
        if self.local is not None:
            yield self.local
            return
        with tempfile.TemporaryDirectory(prefix=scratch_names("file")) as scratch:

            def copy(name: str) -> None:
                target = Path(scratch) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # it was deleted since it was listed, as on a disk
                    self.fetch(name, target)

            side_by_side(copy, self.tree())
            try:
                yield Path(scratch)
            except D3rayError as error:  # the copy is nothing that a user has heard of
                raise type(error)(str(error).replace(scratch, self.name)) from error

    def make(self) -> None:
        with storage_errors("created", self.name):
            if self.local is not None:
                self.local.mkdir(parents=True, exist_ok=True)
            else:
                self._store.make(self._root)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; what is not there is deleted already."""
        with storage_errors("deleted", self.name):
            if self.local is None:
                self._store.delete([self._at(name) for name in names])
            else:
                for name in names:
                    (self.local / name).unlink(missing_ok=True)

    def delete_all(self) -> None:
        """Delete the folder with all that is in it; where there is none, it is deleted already."""
        with storage_errors("deleted", self.name):
            if self.local is not None:
                shutil.rmtree(self.local, ignore_errors=True)
            else:
                self._store.delete_folder(self._root)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}" if self._root else name


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_atomically(path: Path, content: bytes) -> None:
    """Write aside, sync and rename: a reader sees all of it or what was there before. Raises OSError."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with aside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        sync_folder(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Make renames within a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
