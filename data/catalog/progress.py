"""How far a download is: a bar on a terminal, elsewhere (a log file, a worker's log) a line now and then, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Show = Callable[[int, int | None], None]
Display = Callable[[str], AbstractContextManager[Show]]
_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def quiet(what: str) -> Generator[Show]:
    """Shows nothing."""
    del what
    yield lambda done, total: None


@contextmanager
def bar(what: str) -> Generator[Show]:
    """Yields what is told the bytes that are there, and of how many where that is known."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _lines(console, what)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _lines(console: Console, what: str) -> Show:
    spoken = -_SECONDS_BETWEEN_LINES

    def show(done: int, total: int | None) -> None:
        nonlocal spoken
        now = time.monotonic()
        if now - spoken >= _SECONDS_BETWEEN_LINES or done == total:
            spoken = now
            amount = f"{done / 1e6:,.1f} MB" + (f" of {total / 1e6:,.1f} MB ({done / total:.0%})" if total else "")
            console.print(f"{what}: {amount}", markup=False, soft_wrap=True)

    return show
