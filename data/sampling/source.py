"""What training reads from."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

from torch import Tensor

from ..batch import Batch

BLOCK = 128  # steps that are drawn at once, at most; changes no value, and makes the cost of a call vanish
Made = TypeVar("Made")


class Source(Protocol):
    """What training reads from."""

    def sample(self, step: int) -> Batch:
        """The batch of a gradient step."""
        ...

    def between_epochs(self, epoch: int) -> None:
        """Called before the first step of an epoch, with its number from 1: a source may renew itself here."""
        ...


class Steps:
    """Gradient steps, one after another, whose random numbers are drawn together.

    Args:
        numbers: [K] int64. In a program of tensors they lie on its device, so that it can be run again for other steps.

    Attributes:
        at: Which of them is under way, from 0.
    """

    def __init__(self, numbers: Tensor) -> None:
        self.numbers, self.at = numbers, 0
        self._made: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def once(self, name: Hashable, make: Callable[[Tensor], Made]) -> Made:
        """What `make` gives for all of the numbers; made when a name is asked for first."""
        if name not in self._made:
            self._made[name] = make(self.numbers)
        return self._made[name]
