"""What Tune says of faults that d3ray survives, and says itself in a sentence: it goes into a file, not between the progress."""

from __future__ import annotations

import logging
from types import TracebackType

from ...data.errors import StorageError
from ...data.uris import without_secrets
from ..storage.folders import Folder

FILE = "faults.log"  # in the experiment's folder
_LOGGERS = ("ray.tune.execution.tune_controller", "ray.tune.tune")


class FaultLog(logging.Filter):
    """Takes deaths of workers out of what Tune's loggers print, as a context; what cannot be written to `faults.log` is printed."""

    def __init__(self, folder: Folder) -> None:
        super().__init__()
        self.folder = folder
        self._format = logging.Formatter("%(asctime)s %(name)s: %(message)s")

    def filter(self, record: logging.LogRecord) -> bool:
        """False for what is in the file instead."""
        if str(record.msg).startswith("Experiment state snapshotting failed"):
            return False  # nothing is read from Tune's snapshots; what is wrong with the disk the experiment's own writing says
        if not _is_known(record):
            return True
        try:
            before = self.folder.read(FILE) or b""
            self.folder.write(FILE, before + f"{without_secrets(self._format.format(record))}\n".encode())
        except StorageError:
            return True
        return False

    def __enter__(self) -> FaultLog:
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self)


def _is_known(record: logging.LogRecord) -> bool:
    """The death of a worker, which `Watch` tells; and the list of trials that did not finish, which have reasons of their own."""
    from ray.exceptions import RayActorError

    died = record.exc_info is not None and isinstance(record.exc_info[1], RayActorError)
    return died or str(record.msg).startswith("Trials did not complete")
