"""Files that come in from browsers: each lies under a random name until all of it is here and it becomes a dataset's."""

from __future__ import annotations

import re
import secrets
import shutil
import time
from pathlib import Path

from ...data.errors import ConfigError, StorageError
from .records import Records, Upload

KEEP_SECONDS = 7 * 86400  # of an upload that nobody goes on with
_SPARE = 1 << 30  # bytes of the disk that uploads leave free
_MOST_NAME = 100


class Uploads:
    """Those of a folder.

    Args:
        folder: Where files lie while they come in.
        records: Which of them there are.
        most: Bytes of a file.
    """

    def __init__(self, folder: Path, records: Records, most: int) -> None:
        self.folder, self.records, self.most = folder, records, most
        folder.mkdir(parents=True, exist_ok=True)
        for old in records.uploads():
            if time.time() - max(old.begun, self._touched(old)) > KEEP_SECONDS:
                self.delete(old.id)

    def begin(self, name: str, size: int) -> Upload:
        """A new one. Raises ConfigError: it is too large; StorageError: the disk has no room."""
        if size > self.most:
            raise ConfigError(f"{name} has {size / 1e9:.1f} GB; this server takes files of {self.most / 1e9:.1f} GB at most.")
        free = shutil.disk_usage(self.folder).free
        if size + _SPARE > free:
            raise StorageError(f"{name} has {size / 1e9:.1f} GB, and the server's disk has {free / 1e9:.1f} GB free.")
        made = Upload(secrets.token_hex(16), plain_name(name), size, time.time())
        self.file(made.id).touch(mode=0o600)
        self.records.add_upload(made)
        return made

    def file(self, id: str) -> Path:
        """Where it lies."""
        return self.folder / id

    def offset(self, upload: Upload) -> int:
        """Bytes that are here."""
        return self.file(upload.id).stat().st_size

    def whole(self, id: str) -> Upload:
        """One that is all here. Raises ConfigError: it is not, or there is none."""
        upload = self.records.upload(id)
        if upload is None or self.offset(upload) != upload.size:
            raise ConfigError("This file has not come in yet: choose it again, and it goes on where it was.")
        return upload

    def take(self, ids: list[str], folder: Path) -> list[Path]:
        """Moves files that are all here into a folder, under their own names. Raises ConfigError: two are called alike."""
        found = [self.whole(id) for id in ids]
        if len({one.name for one in found}) < len(found):
            raise ConfigError("Two of these files have the same name; rename one of them.")
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            self.file(one.id).replace(folder / one.name)
            self.records.forget_upload(one.id)
        return [folder / one.name for one in found]

    def delete(self, id: str) -> None:
        """Forgets it, and deletes what is here of it."""
        if (upload := self.records.upload(id)) is not None:
            self.file(upload.id).unlink(missing_ok=True)
            self.records.forget_upload(id)

    def _touched(self, upload: Upload) -> float:
        try:
            return self.file(upload.id).stat().st_mtime
        except FileNotFoundError:
            return 0.0


def plain_name(name: str) -> str:
    """A file's name without folders and without characters that mean something to somebody."""
    last = re.split(r"[\\/]", name)[-1]
    return re.sub(r"[^\w.+-]+", "_", last).lstrip(".-")[-_MOST_NAME:] or "file"
