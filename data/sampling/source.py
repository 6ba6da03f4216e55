"""What training reads from."""

from __future__ import annotations

from typing import Protocol

from ..batch import Batch

BLOCK = 128  # steps that are drawn at once, at most; changes no value, and makes the cost of a call vanish


class Source(Protocol):
    """What training reads from."""

    def sample(self, step: int) -> Batch:
        """The batch of a gradient step."""
        ...

    def between_epochs(self, epoch: int) -> None:
        """Called before the first step of an epoch, with its number from 1: a source may renew itself here."""
        ...
