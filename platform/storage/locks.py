"""One holder of a folder at a time, be it local or behind a URI."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from filelock import FileLock, Timeout

from ...data.errors import StorageError
from ...data.storage.files import storage_errors
from .folders import Folder
from .lease import Clock, Lease, LostError

_LOOK_SECONDS = 0.2  # whoever only asks whether a lock is free holds it for some microseconds; a taker outwaits that


class Lock:
    """One holder of a folder at a time: by a file lock, which a dead process gives up; in an object store by a `Lease`."""

    def __init__(self, folder: Folder, clock: Clock | None = None) -> None:
        self.folder, self.held = folder, False
        self._file: FileLock | None = None
        self._lease = Lease(folder, clock)
        if folder.local is not None:
            self._file = FileLock(folder.local / "lock", timeout=_LOOK_SECONDS, poll_interval=0.01, thread_local=False)

    def acquire(self, *, wait: bool = False) -> bool:
        """Takes the lock; False where somebody else has it. In an object store `wait` outlasts the lease of a holder that died."""
        if self._file is not None:
            with storage_errors("written", self.folder.name):
                self._file_folder().mkdir(parents=True, exist_ok=True)
                try:
                    self._file.acquire()
                except (Timeout, FileNotFoundError):  # missing: its holder has deleted the folder just now
                    return False
        elif not self._lease.take(wait):
            return False
        self.held = True
        return True

    @property
    def lost(self) -> bool:
        """True if somebody else has taken it since; only in an object store that can be."""
        return self._lease.lost

    def check(self) -> None:
        """Raises LostError where somebody else has taken it since."""
        if self.lost:
            raise LostError(
                f"Another command has taken {self.folder.name} over, because this one gave no sign of life for a minute; it ends."
            )

    def is_free(self) -> bool:
        if self.held:
            return False
        if self._file is None:
            return self._lease.is_free()
        try:  # flock can only be asked by trying; a shared one needs no right to write, and askers do not see one another
            asked = os.open(self._file_folder() / "lock", os.O_RDONLY)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise StorageError(f"{self.folder.name}/lock cannot be read: {error.strerror}.") from None
        try:
            fcntl.flock(asked, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(asked)
        return True

    def release(self) -> None:
        self.held = False
        if self._file is not None:
            self._file.release()
        else:
            self._lease.give_up()

    def _file_folder(self) -> Path:
        assert self.folder.local is not None
        return self.folder.local
