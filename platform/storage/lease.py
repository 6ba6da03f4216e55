"""A lock in an object store: a note that its holder renews, by a clock of its own and whatever else the holder is doing.

The note is only ever written in place of the version that its writer has seen, so of many who would take it one does. It says which
process holds it: one of this machine that is no longer there holds nothing. Of another machine's processes nobody knows, and clocks
of two machines may differ by minutes: the store's own clock says how old a note is, and where a store does not tell, whoever wants
the note watches it for as long as it is good.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from ...data.errors import StorageError
from ...data.storage.json_text import parse_json
from .folders import Folder, json_bytes

SECONDS = 60.0  # a note that was not renewed for so long is nobody's
_NAME = "lock"
_RENEWAL_SECONDS = 15.0  # three renewals may fail; each is a request
_POLL_SECONDS = 5.0  # of whoever waits for a note to grow old


class LostError(StorageError):
    """Another command has taken a lock since: this one must not write any more."""


class Clock:
    """The time as a lease takes it. Tests have one that they move themselves."""

    def now(self) -> float:
        """Seconds since 1970, which another machine may count otherwise."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that nobody sets, since some moment."""
        return time.monotonic()

    def wait(self, ended: threading.Event, seconds: float) -> bool:
        """Waits for an event, at most for so long; whether it came."""
        return ended.wait(seconds)


class Lease:
    """One holder of a folder behind a URI at a time. From `take` to `give_up` a thread renews the note.

    Args:
        folder: Where the note lies, as `lock`. It stays when nobody holds it, and says so.
        clock: What time it is; None: the machine's.

    Attributes:
        lost: Whether somebody else has taken it, as after the holder's machine slept.
    """

    def __init__(self, folder: Folder, clock: Clock | None = None) -> None:
        self.folder, self.lost = folder, False
        self._clock, self._owner, self._version = clock or Clock(), uuid4().hex, ""
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None

    def take(self, wait: bool) -> bool:
        """Try to take it; return whether it is ours. `wait` outlasts the note of a holder that died.

        Without `wait` it waits only if the note looks old and the store does not tell when it was written.
        """
        note, version = self._look()
        if not self._is_to_be_had(note, version, wait) or not self._write(self._note(), version):
            return False
        self.lost = False
        self._ended.clear()
        self._keeper = threading.Thread(target=self._keep, name="d3ray-lease", daemon=True)
        self._keeper.start()
        return True

    def give_up(self) -> None:
        """Ends the renewals, and says in the note that nobody holds it, where it is still ours."""
        self._ended.set()
        if self._keeper is not None:
            self._keeper.join()  # else it might write the note once more
            self._keeper = None
        if not self.lost:
            self._write({"owner": None}, self._version)

    def is_free(self) -> bool:
        """Return whether nobody holds it now, judged without waiting: if the store does not tell, by this machine's clock."""
        note, _ = self._look()
        if note is None or _is_dead(note):
            return True
        return self._looks_old(note) and ((age := self._age()) is None or age >= SECONDS)

    def renew(self) -> bool:
        """Says that the holder is alive; False, and nothing said, where somebody else has taken the note. Raises StorageError."""
        self.lost = not self._write(self._note(), self._version)
        return not self.lost

    def _keep(self) -> None:
        going = True
        while going and not self._clock.wait(self._ended, _RENEWAL_SECONDS):
            with suppress(StorageError):  # a store that is away: it is asked again
                going = self.renew()

    def _is_to_be_had(self, note: Any, version: str | None, wait: bool) -> bool:
        """Return whether the note is nobody's, or expires without being renewed."""
        if note is None or _is_dead(note):
            return True
        age = self._age()
        left = SECONDS - (age or 0.0)
        if left > 0 and not wait and (age is not None or not self._looks_old(note)):
            return False
        end = self._clock.monotonic() + left
        while (left := end - self._clock.monotonic()) > 0:
            self._clock.wait(self._ended, min(left, _POLL_SECONDS))
            if self._look()[1] != version:  # it lives; or somebody else has it, or gave it up just now
                return False
        return True

    def _looks_old(self, note: Any) -> bool:
        """Return whether the note is old, if its holder's clock and this machine's agree."""
        return note["time"] + SECONDS <= self._clock.now()

    def _age(self) -> float | None:
        """Seconds since the note was written, both by the store's clock: what is written now tells what time it is there.

        None where the store does not tell, where it takes nothing from us, and where the note has gone.
        """
        now_written = f".asked-{self._owner}"
        with suppress(StorageError):
            self.folder.write(now_written, b"What time is it?")
            try:
                now, then = self.folder.written(now_written), self.folder.written(_NAME)
            finally:
                self.folder.delete([now_written])
            return None if now is None or then is None else now - then
        return None

    def _look(self) -> tuple[Any, str | None]:
        """The note, None where nobody has it; and its version, None where there is none."""
        if (found := self.folder.versioned(_NAME)) is None:
            return None, None
        try:
            note = parse_json(found[0])
        except ValueError:
            raise StorageError(f"{self.folder.address(_NAME)} is damaged: it is not JSON.") from None
        return (note if note["owner"] else None), found[1]

    def _note(self) -> dict[str, Any]:
        return {
            "owner": self._owner,
            "time": self._clock.now(),
            **_this_process(),
            "turn": uuid4().hex[:8],
        }  # a version may be a hash

    def _write(self, note: dict[str, Any], version: str | None) -> bool:
        """Writes the note in place of a version; False where it is another one by now."""
        content = json_bytes(note)
        written = self.folder.write_version(_NAME, content, version)
        if written is None:  # by us, where the answer to a first try was lost
            there = self.folder.versioned(_NAME)
            written = there[1] if there is not None and there[0] == content else None
        self._version = written or self._version
        return written is not None


def _is_dead(note: dict[str, Any]) -> bool:
    if note.get("machine") != _machine():
        return False
    try:
        return psutil.Process(note["pid"]).create_time() != note["started"]
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {"machine": _machine(), "pid": pid, "started": psutil.Process(pid).create_time()}


@cache
def _machine() -> str:
    """This machine, from its start to its end; of containers, this one, for each counts its processes anew."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        counted = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux
        boot, counted = str(round(psutil.boot_time())), ""
    return f"{socket.gethostname()} {boot} {counted}".strip()
