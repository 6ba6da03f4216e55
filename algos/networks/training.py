"""What layers need to know while a loss is computed, and nothing else does: where they draw from, where statistics go.

There are no `.train()` and `.eval()` flags: a layer is training exactly while the learner computes a loss with a live network.
A policy that acts and an export see the same layers at rest, and so does a target network, but for layers that draw there too
(they have `draws = True`; the fractions of an implicit quantile network are drawn for both).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...data.random import fold, normal, uniform


@dataclass
class Pass:
    """One pass of one network inside a loss."""

    key: Tensor  # int64 (), the address of this pass
    dtype: torch.dtype
    training: bool  # False: layers are at rest, as a target network's, and a live one's where a loss is only read
    statistics: dict[str, Tensor] | None  # where batch norm leaves its new running statistics; None: not kept
    target: bool = False  # whether the network is a target
    draws: int = field(default=0)

    def uniform(self, shape: tuple[int, ...], name: str | None = None) -> Tensor:
        """Uniform draws of this pass at the address `name`; without one, at their position among those that have none."""
        return uniform(self._address(name), shape, self.dtype)

    def normal(self, shape: tuple[int, ...], name: str | None = None) -> Tensor:
        """Standard normal draws, addressed in the same way."""
        return normal(self._address(name), shape, self.dtype)

    def _address(self, name: str | None) -> Tensor:
        if name is None:
            self.draws += 1
        return fold(self.key, self.draws if name is None else name)


_current: ContextVar[Pass | None] = ContextVar("pass", default=None)


def current_training() -> Pass | None:
    """The live network's pass under way, or None when layers are at rest."""
    now = _current.get()
    return now if now is not None and now.training else None


def current_draws() -> Pass | None:
    """The pass under way, a target network's too; None outside a loss, where nothing is drawn."""
    return _current.get()


@contextmanager
def under_way(now: Pass | None) -> Generator[None]:
    """Layers called inside belong to this pass."""
    token = _current.set(now)
    try:
        yield
    finally:
        _current.reset(token)
