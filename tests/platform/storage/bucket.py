"""An object store in memory, behind `fsspec+bucket://`."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem


class Upload(MemoryFile):
    """An object that is there once it is whole."""

    uploaded = False

    def close(self) -> None:
        if not self.uploaded:  # Python closes what it deletes, and that would bring a deleted object back
            self.commit()
            self.at = None if Bucket.clock is None else Bucket.clock()
        self.uploaded = True


class Bucket(MemoryFileSystem):
    """Objects as a bucket has them. fsspec's own store in memory shows what is half written, and its readers share one position."""

    protocol = "bucket"
    clock: ClassVar[Callable[[], float] | None] = None  # by which it tells when an object was written; None: it does not

    def info(self, path: str, **options: Any) -> Any:
        found = super().info(path, **options)
        return found | {"mtime": self.store[found["name"]].at} if found["type"] == "file" else found

    def _open(self, path: str, mode: str = "rb", *args: Any, **options: Any) -> Any:
        path = self._strip_protocol(path)
        return Upload(self, path) if mode == "wb" else io.BytesIO(self.cat_file(path))


def register_bucket() -> None:
    """Lets `fsspec+bucket://` be opened in this process."""
    fsspec.register_implementation("bucket", Bucket, clobber=True)
