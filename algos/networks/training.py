"""What layers need to know while a loss is computed, and nothing else does: where dropout draws from, where statistics go.

There are no `.train()` and `.eval()` flags: a layer is training exactly while the learner computes a loss with a live network.
A policy that acts, a target network and an export see the same layers at rest.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...data.random import fold, uniform


@dataclass
class Training:
    """One pass of one network inside a loss."""

    key: Tensor  # int64 (), the address of this pass
    dtype: torch.dtype
    statistics: dict[str, Tensor] | None  # where batch norm leaves its new running statistics; None: not kept
    draws: int = field(default=0)

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        """The next uniform draw of this pass; its address is its position."""
        self.draws += 1
        return uniform(fold(self.key, self.draws), shape, self.dtype)


_current: ContextVar[Training | None] = ContextVar("training", default=None)


def current_training() -> Training | None:
    """The pass under way, or None when layers are at rest."""
    return _current.get()


@contextmanager
def training(now: Training | None) -> Generator[None]:
    """Layers called inside belong to this pass."""
    token = _current.set(now)
    try:
        yield
    finally:
        _current.reset(token)
