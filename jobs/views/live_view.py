"""What a command shows of the experiment that it runs or follows: a table that stays in place, or lines in a log."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.constrain import Constrain
from rich.live import Live
from rich.spinner import Spinner

from ...data.errors import D3rayError
from .view_text import Drawing, duration, end_of, line

if TYPE_CHECKING:
    from ...platform.record.status import Status
    from ...platform.results.progress import Progress

_SECONDS_BETWEEN = 0.5  # redraws; moments and times left go on between two readings
_SECONDS_OF_A_FRAME = 0.1  # of what turns while there is nothing else to show
_READ_SECONDS = 1.0
_SHARE = 0.03  # of the time may go into reading, and into drawing, however large the experiment is
_SECONDS_BETWEEN_LINES = 60.0
Read = Callable[[], "Status | None"]


@contextmanager
def live_experiment(storage: str, name: str) -> Generator[Callable[[Progress], None]]:
    """Shows the experiment that this process runs until the context ends; yields what `run_experiment` takes as `on_progress`."""
    from ...platform.results.status_reader import StatusReader
    from ...platform.storage.folders import Folder

    newest: list[Progress] = []
    reader: list[StatusReader] = []
    ours = {"host": socket.gethostname(), "pid": os.getpid()}

    def read() -> Status | None:
        if not reader:  # what lies there may be what is about to be replaced, or another's
            try:
                state = (Folder(storage) / name).read_json("state.json") or {}
            except D3rayError:  # what is wrong with the storage the command says itself
                return None
            if state.get("status") != "RUNNING" or {key: state.get(key) for key in ours} != ours:
                return None
            reader.append(StatusReader(storage, name))
        return reader[0].read(newest[0] if newest else None)

    def on_progress(progress: Progress) -> None:
        newest[:] = [progress]

    def waiting() -> str:
        what = newest[0].waiting if newest else ""
        return f"{name}: {what}" if what else ""

    try:
        with showing(read, waiting):
            yield on_progress
    except KeyboardInterrupt:
        _leave(read)
        raise


def _leave(read: Read) -> None:
    """Print the last state, so that it stays after an interrupt; the command says how to go on."""
    with suppress(D3rayError):
        if (status := read()) is not None:
            console = Console(stderr=True, highlight=False)
            console.print(Drawing(status, advice=False), height=console.size.height - 1)


@contextmanager
def showing(read: Read, waiting: Callable[[], str] | None = None, console: Console | None = None) -> Generator[threading.Event]:
    """Shows what `read` gives, again and again; yields an event that is set once the experiment does not run any more.

    `console` None: it is shown on stderr. `read` is called in a thread of its own; None: there is no status yet. Until there is one
    `waiting` gives what is waited for, or nothing: a command that ends at once, as one that is refused does, then reads nothing,
    which may take long.
    """
    console = console or Console(stderr=True, highlight=False)
    show = _Table(console) if console.is_terminal else _Lines(console)
    stop, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=_work, args=(read, show, stop, over, waiting), name="d3ray-view", daemon=True)
    with show:
        thread.start()
        try:
            yield over
        finally:
            stop.set()
            thread.join()


def _work(
    read: Read, show: _Table | _Lines, stop: threading.Event, over: threading.Event, waiting: Callable[[], str] | None
) -> None:
    status: Status | None = None
    due = first = time.monotonic() + (_SECONDS_BETWEEN if waiting else 0.0)
    wait = 0.0
    last = False
    while not last:
        last = stop.wait(wait)
        begun = time.monotonic()
        if begun >= due or (last and begun >= first and isinstance(show, _Lines)):
            try:
                status = read() or status
            except D3rayError as error:  # half-deleted, or a storage that is away for a moment: the next reading may do better
                show.failed(str(error))
            due = time.monotonic() + max(_READ_SECONDS, (time.monotonic() - begun) / _SHARE)
        if status is not None and not (last and isinstance(show, _Table)):
            drawn = time.monotonic()
            show(status)
            wait = max(_SECONDS_BETWEEN, (time.monotonic() - drawn) / _SHARE)
            if not status.runs:
                over.set()
        elif waiting is not None and not last:
            show.waiting(waiting())
            wait = _SECONDS_OF_A_FRAME
        else:
            wait = _SECONDS_BETWEEN


class _Table:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._spinner, self._what, self._since = Spinner("dots"), "", 0.0
        aside = sys.stdout.isatty() and console.stderr  # what others print appears above the table
        self._live = Live(
            "", console=console, auto_refresh=False, transient=True, redirect_stdout=aside, redirect_stderr=console.stderr
        )
        self._size = console.size

    def __enter__(self) -> None:
        self._live.start(refresh=True)

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, status: Status) -> None:
        if (size := self._console.size) != self._size:  # lines that were drawn are wrapped now: where they begin nobody knows
            self._size = size
            self._live.stop()
            self._console.clear()
            self._live.start()
        room = self._console.width - len("^C")  # which a terminal writes behind it, and must not wrap
        self._live.update(Constrain(Drawing(status.later(time.time())), room), refresh=True)

    def waiting(self, what: str) -> None:
        """Says for what, and how long already."""
        if what and what != self._what:
            self._what, self._since = what, time.monotonic()
        if self._what:
            self._spinner.update(text=f"{self._what}, {duration(time.monotonic() - self._since)}")
            self._live.update(self._spinner, refresh=True)

    def failed(self, why: str) -> None:
        """Nothing: what is shown is the newest that could be read."""


class _Lines:
    """A line a minute, and one for each trial that ends."""

    def __init__(self, console: Console) -> None:
        self._console, self._spoken, self._what = console, -_SECONDS_BETWEEN_LINES, ""
        self._ended: set[str] | None = None  # trials of which that was said, or that had ended before

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, status: Status) -> None:
        now, ended = time.monotonic(), {trial.identity: trial for trial in status.trials if trial.ended}
        if self._ended is not None:
            for identity in ended.keys() - self._ended:
                self._say(end_of(status, ended[identity]))
        self._ended = set(ended)
        if now - self._spoken >= _SECONDS_BETWEEN_LINES:
            self._spoken = now
            self._say(line(status))

    def waiting(self, what: str) -> None:
        """Says for what, once."""
        if what and what != self._what:
            self._what = what
            self._say(what)

    def failed(self, why: str) -> None:
        """Says it, as often as a line is due."""
        if time.monotonic() - self._spoken >= _SECONDS_BETWEEN_LINES:
            self._spoken = time.monotonic()
            self._say(why)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)
