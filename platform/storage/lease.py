"""A lock in an object store: a note that its holder renews, by a clock of its own and whatever else the holder is doing.

Machines' clocks may differ by minutes. So nobody takes a note for old because of the time in it: the store's own clock says how
old it is, and where a store does not tell, whoever wants the note watches it for as long as it is good.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any
from uuid import uuid4

from ...data.errors import StorageError
from .folders import Folder

SECONDS = 60.0  # a note that was not renewed for so long is nobody's
_RENEWAL_SECONDS = 15.0  # three renewals may fail; each is two requests
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

    Stores have no lock of their own, so between looking at the note and writing it a moment remains in which two may take it.

    Args:
        folder: Where the note lies, as `lock`.
        clock: What time it is; None: the machine's.

    Attributes:
        lost: Whether somebody else has taken it, as after the holder's machine slept.
    """

    def __init__(self, folder: Folder, clock: Clock | None = None) -> None:
        self.folder, self.lost = folder, False
        self._clock, self._owner = clock or Clock(), uuid4().hex
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None

    def take(self, wait: bool) -> bool:
        """Whether it is ours now. `wait` outlasts the note of a holder that died.

        Without it there is something to wait for only where the note looks old and the store does not tell when it was written.
        """
        if not self._is_old(wait):
            return False
        self._write()
        if not self._is_ours():  # somebody wrote at the same time, and later
            return False
        self.lost = False
        self._ended.clear()
        self._keeper = threading.Thread(target=self._keep, name="d3ray-lease", daemon=True)
        self._keeper.start()
        return True

    def give_up(self) -> None:
        """Ends the renewals, and deletes the note where it is still ours."""
        self._ended.set()
        if self._keeper is not None:
            self._keeper.join()  # else it might write the note once more
            self._keeper = None
        if self._is_ours():
            self.folder.delete(["lock"])

    def is_free(self) -> bool:
        """Whether nobody holds it now, as far as can be told at once: where the store does not tell, by this machine's clock."""
        if (note := self._note()) is None:
            return True
        return self._looks_old(note) and ((age := self._age()) is None or age >= SECONDS)

    def renew(self) -> bool:
        """Says that the holder is alive; False, and nothing said, where somebody else has taken the note. Raises StorageError."""
        if not self._is_ours():
            self.lost = True
            return False
        self._write()
        return True

    def _keep(self) -> None:
        going = True
        while going and not self._clock.wait(self._ended, _RENEWAL_SECONDS):
            with suppress(StorageError):  # a store that is away: it is asked again
                going = self.renew()

    def _is_old(self, wait: bool) -> bool:
        """Whether the note is old, or is not renewed until it is."""
        if (first := self._note()) is None:
            return True
        age = self._age()
        left = SECONDS - (age or 0.0)
        if left > 0 and not wait and (age is not None or not self._looks_old(first)):
            return False
        end = self._clock.monotonic() + left
        while (left := end - self._clock.monotonic()) > 0:
            self._clock.wait(self._ended, min(left, _POLL_SECONDS))
            if (note := self._note()) != first:
                return note is None
        return True

    def _looks_old(self, note: Any) -> bool:
        """Whether it is old, if its holder's clock and this machine's go alike."""
        return note["time"] + SECONDS <= self._clock.now()

    def _age(self) -> float | None:
        """Seconds since the note was written, both by the store's clock: what is written now tells what time it is there.

        None where the store does not tell, where it takes nothing from us, and where the note has gone.
        """
        now_written = f".asked-{self._owner}"
        with suppress(StorageError):
            self.folder.write(now_written, b"What time is it?")
            try:
                now, then = self.folder.written(now_written), self.folder.written("lock")
            finally:
                self.folder.delete([now_written])
            return None if now is None or then is None else now - then
        return None

    def _is_ours(self) -> bool:
        return (self._note() or {}).get("owner") == self._owner

    def _note(self) -> Any:
        return self.folder.read_json("lock")

    def _write(self) -> None:
        self.folder.write_json("lock", {"owner": self._owner, "time": self._clock.now()})
