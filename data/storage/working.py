"""How long work is handed out and shown: who writes a dataset is given what calls its functions, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

Run = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]  # calls a function with each item; results in their order


class Advance(Protocol):
    """Tells a progress display that `n` more units are done, or `to` in all; `note` is shown beside them.

    `total` says how many there are, where that is known only now.
    """

    def __call__(self, n: float = 1, *, note: str = "", to: float | None = None, total: float | None = None) -> None: ...


Progress = Callable[[str, float | None], AbstractContextManager[Advance]]  # of what is going on, and how many units there are


def in_process(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    return map(function, items)


@contextmanager
def no_progress(description: str, total: float | None = None) -> Generator[Advance]:
    del description, total
    yield lambda n=1, *, note="", to=None, total=None: None
