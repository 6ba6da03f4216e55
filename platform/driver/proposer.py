"""Who says which trial runs next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ..storage.experiments import Trial


class Proposer(Protocol):
    """Who decides which trial is next. Everything is called in the driver's thread."""

    def has_more(self) -> bool:
        """Whether `next` would give a trial, now or once others have ended."""
        ...

    def next(self) -> Trial | None:
        """The next trial; None: not before one that runs has ended. Raises StopIteration: there is nothing more."""
        ...

    def reported(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """A trial finished an epoch, with what its worker reported."""
        ...

    def ended(self, trial: Trial) -> None:
        """A trial that was given ended; its folder says how."""
        ...


class Listed:
    """The proposer of trials that are known beforehand: those that are not settled, in order."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._left = [trial for trial in trials if not trial.is_settled]
        self._left.reverse()

    def has_more(self) -> bool:
        return bool(self._left)

    def next(self) -> Trial | None:
        if not self._left:
            raise StopIteration
        return self._left.pop()

    def reported(self, trial: Trial, result: Mapping[str, Any]) -> None:
        pass

    def ended(self, trial: Trial) -> None:
        pass
