"""Folders of files, local or behind a URI that pyarrow.fs opens, with atomic writes and errors in one sentence."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import StorageError

PIECES = ".d3ray-pieces-"  # begins the name of a folder of pieces; a writer's mark ends it
_PIECE = 1 << 22  # bytes copied at once


@contextmanager
def storage_errors(verb: str, what: object) -> Generator[None]:
    """Turns an OSError into a StorageError: "`what` cannot be `verb`: why". A full disk is called so."""
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
    """A folder. `local` is its path where it is on this machine; elsewhere it is read and written through pyarrow.fs.

    Args:
        where: path or URI.
        mark: 8 hexadecimal digits in the names of the dataset files that one write makes there; none where nothing is replaced.

    Raises:
        StorageError: the URI is of a kind that pyarrow.fs does not know, or its server cannot be used.
    """

    def __init__(self, where: str | Path, mark: str = "") -> None:
        text, self.mark = str(where), mark
        scheme, found, rest = text.partition("://")
        self.local: Path | None = None
        self._files: Any = None
        if found and scheme != "file":
            import pyarrow as pa
            from pyarrow import fs

            try:
                self._files, self._root = fs.FileSystem.from_uri(text)
            except (pa.ArrowInvalid, ValueError) as error:
                raise StorageError(f"{text} cannot be opened: {str(error).splitlines()[0].rstrip('.')}.") from None
            except (OSError, ImportError) as error:
                raise StorageError(f"{text} cannot be reached: {str(error).splitlines()[0].rstrip('.')}.") from None
            self.name = text.rstrip("/")
        else:
            self.local = Path(rest if found else text).expanduser().absolute()
            self.name = str(self.local)

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return Place, (self.name, self.mark)

    def names(self) -> list[str]:
        """Names of what is in the folder; none where there is no folder."""
        with storage_errors("listed", self.name):
            if self.local is not None:
                return sorted(path.name for path in self.local.iterdir()) if self.local.is_dir() else []
            from pyarrow import fs

            return sorted(info.base_name for info in self._files.get_file_info(fs.FileSelector(self._root, allow_not_found=True)))

    def tree(self) -> list[str]:
        """The files in the folder at any depth that are not hidden, by their paths below it; none where there is no folder."""
        with storage_errors("listed", self.name):
            if self.local is not None:
                below = [path.relative_to(self.local) for path in self.local.rglob("*") if path.is_file()]
            else:
                from pyarrow import fs

                if self._files.get_file_info(self._root).type != fs.FileType.Directory:
                    return []
                selector = fs.FileSelector(self._root, allow_not_found=True, recursive=True)
                found = [info for info in self._files.get_file_info(selector) if info.is_file]
                below = [PurePosixPath(info.path).relative_to(self._root.rstrip("/")) for info in found]
        return sorted(path.as_posix() for path in below if not any(part.startswith(".") for part in path.parts))

    def sizes(self, names: Iterable[str]) -> dict[str, int | None]:
        """Bytes of each file; None where it is missing."""
        if self.local is not None:
            return {name: _size(self.local / name) for name in names}
        wanted = list(names)
        with storage_errors("read", self.name):
            infos = self._files.get_file_info([self._at(name) for name in wanted])
        return {name: info.size if info.is_file else None for name, info in zip(wanted, infos, strict=True)}

    def read(self, name: str) -> bytes | None:
        """A small file's content; None where it is missing."""
        with storage_errors("read", f"{self.name}/{name}"):
            try:
                if self.local is not None:
                    return (self.local / name).read_bytes()
                with self._files.open_input_file(self._at(name)) as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, content: bytes) -> None:
        """A file that is whole or not there: written aside and renamed, or in one PUT."""
        with storage_errors("written", f"{self.name}/{name}"):
            if self.local is not None:
                write_atomically(self.local / name, content)
            else:
                with self._files.open_output_stream(self._at(name)) as file:
                    file.write(content)

    def touch(self, name: str) -> None:
        """An empty file."""
        if self.local is None:
            self.write(name, b"")
        else:
            with storage_errors("written", f"{self.name}/{name}"):
                (self.local / name).touch()

    def put(self, file: Path, name: str) -> None:
        """Moves a local file here."""
        with storage_errors("written", f"{self.name}/{name}"):
            if self.local is not None:
                file.replace(self.local / name)
                return
            with file.open("rb") as source, self._files.open_output_stream(self._at(name)) as target:
                shutil.copyfileobj(source, target, _PIECE)
            file.unlink()

    def open(self, name: str) -> Any:
        """A file of this folder as pyarrow's `NativeFile`, to be read at any place. Raises StorageError."""
        with storage_errors("opened", f"{self.name}/{name}"):
            if self.local is not None:
                import pyarrow as pa

                return pa.OSFile(str(self.local / name))
            return self._files.open_input_file(self._at(name))

    def fetch(self, name: str, target: Path) -> None:
        """Copies a file of this folder to a local one. Raises FileNotFoundError where it is missing."""
        source = self._files.open_input_file(self._at(name))
        with source, storage_errors("written", target), target.open("wb") as file:
            shutil.copyfileobj(source, file, _PIECE)

    def make(self) -> None:
        """Creates the folder, with its parents."""
        with storage_errors("created", self.name):
            if self.local is not None:
                self.local.mkdir(parents=True, exist_ok=True)
            else:
                self._files.create_dir(self._root, recursive=True)

    def delete(self, names: Iterable[str]) -> None:
        """Deletes files; what is not there is deleted already."""
        with storage_errors("deleted", self.name):
            for name in names:
                if self.local is not None:
                    (self.local / name).unlink(missing_ok=True)
                else:
                    with suppress(FileNotFoundError):
                        self._files.delete_file(self._at(name))

    def delete_all(self) -> None:
        """Deletes the folder with all that is in it; where there is none, it is deleted already."""
        with storage_errors("deleted", self.name):
            if self.local is not None:
                shutil.rmtree(self.local, ignore_errors=True)
            else:
                with suppress(FileNotFoundError):
                    self._files.delete_dir(self._root)

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_atomically(path: Path, content: bytes) -> None:
    """Written aside, synced and renamed: a reader sees all of it or what was there before. Raises OSError."""
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
    """Makes renames within a folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """SHA-256 of a local file's bytes, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
