"""A look at an HDF5 file in a process of its own, for damage that libhdf5 does not survive or does not come back from."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py

from ...errors import DataError

SMALL = 1 << 23  # bytes of a file of which all arrays are looked at, and not only the ends of each
LARGE = 1 << 26  # bytes of an array that is not looked at as a whole in any file
LOOKING = 0.3  # seconds of a processor's time after which enough was seen
MOST = 1.0  # the same, after which libhdf5 does not come back
PATIENCE = 60.0  # seconds that a slow disk may take; then the file is read unseen


def check_hdf5(path: Path) -> None:
    """Reads what there is to read of a small file, and the structure of a large one, in a child that may die of it.

    Raises:
        DataError: it did, or its time was up.
    """
    if not hasattr(os, "fork"):
        return
    about = path.stat()
    if found := _outcome(str(path.absolute()), about.st_size, about.st_mtime_ns):
        raise DataError(f"{path} is an HDF5 file that is damaged: {found}.")


@lru_cache(maxsize=256)
def _outcome(path: str, size: int, changed: int) -> str:
    """What went wrong, nothing where nothing did; looked at once for each state of a file."""
    del changed
    # A fork costs milliseconds, a new interpreter half a second. The child uses libhdf5 only, and ends without clearing up.
    child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, MOST)
            look(path, whole=size <= SMALL)
        finally:
            os._exit(0)  # what Python has to say of the file is said where it is read
    end = time.monotonic() + PATIENCE
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return ""
        time.sleep(0.001)
    if not os.WIFSIGNALED(done[1]):
        return ""
    killed = signal.Signals(os.WTERMSIG(done[1]))
    if killed == signal.SIGPROF:
        return "reading it does not end"
    return f"it kills the process that reads it ({killed.name})"


def look(path: str, *, whole: bool) -> None:
    """Walks through the file and reads its arrays, or their ends; stops when enough was seen."""

    def visit(name: str, node: Any) -> bool | None:
        del name
        if isinstance(node, h5py.Dataset) and not node.external and not node.is_virtual and node.shape is not None:
            if (whole and node.nbytes <= LARGE) or not node.shape:
                node[()]
            elif node.shape[0]:
                _ = node[:1], node[-1:]
        return True if time.process_time() > LOOKING else None

    with h5py.File(path, "r") as file:
        file.visititems(visit)
