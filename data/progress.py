"""How far long work is, how fast it goes and how long it will take, on stderr."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from .storage.working import Advance

_SECONDS_BETWEEN_LINES = 10.0


def draws_bars(console: Console | None = None) -> bool:
    """Tell whether stderr is a terminal, or a notebook with ipywidgets: elsewhere progress is a line now and then."""
    console = console or Console(stderr=True)
    return console.is_terminal or (console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None)


@contextmanager
def progress(description: str, total: float | None = None, *, in_bytes: bool = False, bar: bool = True) -> Generator[Advance]:
    """Show how far long work is, how fast it goes and how long it will take, and yield what to call as units get done.

    A bar on a terminal, elsewhere (a log file, a cluster's job log) a line now and then, as with `bar` false, where something else
    may be drawn on the terminal at the same time. `description` is what is going on, as "training"; `total` the units in all, None
    where nobody knows; `in_bytes` says that they are bytes.
    """
    console = Console(stderr=True, highlight=False)
    if not bar or not draws_bars(console):
        yield _lines(description, total, in_bytes=in_bytes)
        return
    amount = (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(), _Speed())
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *amount, TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as drawn:
        task = drawn.add_task(description, total=total, note="")

        def advance(n: float = 1, *, note: str = "", to: float | None = None, total: float | None = None) -> None:
            if to is None:
                drawn.advance(task, n)
            else:
                drawn.update(task, completed=to, total=total)
            if note:
                drawn.update(task, note=note)

        yield advance


class _Speed(ProgressColumn):
    """Units a second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.3g}/s")


def _lines(description: str, known: float | None, *, in_bytes: bool) -> Advance:
    done, spoken = 0.0, -_SECONDS_BETWEEN_LINES
    began: tuple[float, float] | None = None  # when the first line was written, and what was done by then

    def said(amount: float) -> str:
        return f"{amount / 1e6:,.1f} MB" if in_bytes else f"{amount:g}"

    def advance(n: float = 1, *, note: str = "", to: float | None = None, total: float | None = None) -> None:
        nonlocal done, spoken, began
        done, total = done + n if to is None else to, known if total is None else total
        now = time.monotonic()
        if now - spoken >= _SECONDS_BETWEEN_LINES or done == total:
            spoken = now
            amount = said(done) + ("" if total is None else f" of {said(total)}") + (f" ({done / total:.0%})" if total else "")
            if began is None:
                began = now, done
            elif total and began[1] < done < total:
                rate = (done - began[1]) / (now - began[0])
                speed = said(rate) if in_bytes else f"{rate:,.3g}"
                amount += f", {speed}/s, {timedelta(seconds=round((total - done) / rate))} left"
            say_now = f"{description}: {amount}" + (f"  {note}" if note else "")
            Console(stderr=True, soft_wrap=True, highlight=False).print(say_now, markup=False)

    return advance
