"""What pyarrow.fs opens and is no bucket of S3: Google's and Microsoft's stores, HDFS, whatever fsspec knows.

pyarrow writes without conditions. So `create` and `replace` look, write and look again, and of two that do so in the same moment
both may have it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import StorageError
from .base import Found, Readable

_PIECE = 1 << 22  # bytes copied at once


class ArrowFiles:
    """A file system of pyarrow."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def read(self, key: str) -> bytes:
        with self._files.open_input_file(key) as file:
            return file.read()

    def read_versioned(self, key: str) -> tuple[bytes, str]:
        content = self.read(key)
        return content, _version(content)

    def write(self, key: str, content: bytes) -> None:
        with self._files.open_output_stream(key) as file:
            file.write(content)

    def create(self, key: str, content: bytes) -> str | None:
        return self._written(key, content) if self._now(key) is None else None

    def replace(self, key: str, content: bytes, version: str) -> str | None:
        return self._written(key, content) if self._now(key) == version else None

    def _written(self, key: str, content: bytes) -> str | None:
        self.write(key, content)
        version = _version(content)
        return version if self._now(key) == version else None

    def _now(self, key: str) -> str | None:
        try:
            return self.read_versioned(key)[1]
        except FileNotFoundError:
            return None

    def upload(self, file: Path, key: str) -> None:
        with file.open("rb") as source, self._files.open_output_stream(key) as target:
            shutil.copyfileobj(source, target, _PIECE)

    def copy(self, key: str, to: str) -> None:
        self._files.copy_file(key, to)

    def download(self, key: str, target: Path) -> None:
        with self._files.open_input_file(key) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, _PIECE)

    def open(self, key: str) -> Readable:
        return self._files.open_input_file(key)

    def look(self, keys: Sequence[str]) -> list[Found | None]:
        return [_found(info) if info.is_file else None for info in self._files.get_file_info(list(keys))]

    def list(self, folder: str) -> tuple[list[str], list[Found]]:
        infos = self._infos(folder, recursive=False)
        return [info.base_name for info in infos if not info.is_file], [_found(info) for info in infos if info.is_file]

    def walk(self, folder: str) -> list[Found]:
        from pyarrow import fs

        if self._files.get_file_info(folder).type != fs.FileType.Directory:
            return []
        return [_found(info) for info in self._infos(folder, recursive=True) if info.is_file]

    def _infos(self, folder: str, *, recursive: bool) -> Any:
        from pyarrow import fs

        return self._files.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=recursive))

    def make(self, folder: str) -> None:
        self._files.create_dir(folder, recursive=True)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            try:
                self._files.delete_file(key)
            except FileNotFoundError:
                pass
            except OSError:  # a store may refuse the folder's marker, which pyarrow writes after the last file is gone
                if self._files.get_file_info(key).is_file:
                    raise

    def delete_folder(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            self._files.delete_dir(folder)


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _found(info: Any) -> Found:
    return Found(info.path, info.size, info.mtime_ns / 1e9 if info.mtime_ns else None)


def open_arrow(uri: str) -> tuple[ArrowFiles, str]:
    """Open the file system of a URI, and return the path that it names. Raises StorageError."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        files, root = fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, ValueError) as error:
        raise StorageError(f"{uri} cannot be opened: {str(error).splitlines()[0].rstrip('.')}.") from None
    except (OSError, ImportError) as error:
        raise StorageError(f"{uri} cannot be reached: {str(error).splitlines()[0].rstrip('.')}.") from None
    return ArrowFiles(files), root.rstrip("/")
