"""What is known of services: the newest look at a log, and where loops stand."""

from __future__ import annotations

from pathlib import Path

from ...data.errors import D3rayError
from ...data.uris import is_remote
from ..record.loop import LoopState
from ..record.watch import Watched


def watched(log: str) -> Watched | None:
    """Return what `d3ray watch` found when it last looked at a log, without `out`; None: it never has. Raises StorageError."""
    from ..watch.keeping import folder_of, read_watched
    from ..watch.settings import WatchSettings

    return read_watched(folder_of(WatchSettings(log=log)))


def watch_page(log: str) -> bytes | None:
    """Return the page that `d3ray watch` wrote beside a log; None: there is none. Raises StorageError."""
    from ..watch.keeping import folder_of
    from ..watch.page import FILE
    from ..watch.settings import WatchSettings

    return folder_of(WatchSettings(log=log)).read(FILE)


def loops(storage: str = "./d3ray_results") -> list[LoopState]:
    """Return where the loops of a results folder stand, by name. One whose state cannot be read is left out."""
    from ..loop.state import FILE, read_state

    found: list[LoopState] = []
    if is_remote(storage):
        return found
    for file in sorted((Path(storage).expanduser() / "loops").glob(f"*/{FILE}")):
        try:
            found.append(read_state(file.parent))
        except D3rayError:
            continue
    return found
