"""Who says which trial runs next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ..storage.trials import Trial


class Proposer(Protocol):
    """Who decides which trial is next. Everything is called in the driver's thread."""

    def has_more(self) -> bool:
        """Return whether `next` would give a trial, now or once others have ended."""
        ...

    def next(self) -> Trial | None:
        """The next trial; None: not before one that runs has ended. Raises StopIteration: there is nothing more."""
        ...

    def ended(self, trial: Trial) -> None:
        """A trial that was given ended; its folder says how."""
        ...


class Listed:
    """Proposes trials that are known beforehand: those that are not settled, in order, until `is_over`."""

    def __init__(self, trials: Iterable[Trial], is_over: Callable[[], bool] = lambda: False) -> None:
        self._left, self._is_over = [trial for trial in trials if not trial.is_settled], is_over
        self._left.reverse()

    def has_more(self) -> bool:
        return bool(self._left) and not self._is_over()

    def next(self) -> Trial | None:
        if not self.has_more():
            raise StopIteration
        return self._left.pop()

    def ended(self, trial: Trial) -> None:
        pass
