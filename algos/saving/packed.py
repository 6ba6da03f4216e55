"""Saved algorithms as one file: the folder of a checkpoint in an archive that compresses nothing."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from ...data.errors import StorageError, reason
from ...data.storage.claims import scratch_names
from ...data.storage.files import storage_errors, write_atomically

_BEGINS = b"PK\x03\x04"


def is_packed(path: str | Path) -> bool:
    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as file:
        return file.read(len(_BEGINS)) == _BEGINS


def pack(folder: Path, path: Path) -> None:
    """Writes a folder as one file; nothing is left half-written. Raises StorageError where it cannot be."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for file in sorted(folder.rglob("*")):
            packed.write(file, file.relative_to(folder).as_posix())
    with storage_errors("written", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, archive.getvalue())


@contextmanager
def unpacked(path: str | Path) -> Generator[Path]:
    """The folder that was packed, while the body runs. Raises StorageError where it is damaged, or was packed otherwise."""
    with TemporaryDirectory(prefix=scratch_names("file")) as scratch:
        try:
            with zipfile.ZipFile(path) as packed:
                if any(one.compress_type != zipfile.ZIP_STORED for one in packed.infolist()):  # it may grow without bounds
                    raise StorageError(f"{path} is no saved algorithm: it is compressed, which save does not do.")
                packed.extractall(scratch)
        except (OSError, zipfile.BadZipFile, ValueError) as error:
            raise StorageError(f"{path} is no saved algorithm, or a damaged one ({reason(error)}).") from None
        yield Path(scratch)
