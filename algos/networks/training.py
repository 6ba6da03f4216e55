"""What layers need to know while a loss is computed, and nothing else does: where they draw from, where statistics go.

There are no `.train()` and `.eval()` flags: a layer is training exactly while the learner computes a loss with a live network.
A policy that acts and an export see the same layers at rest, and so does a target network, but for layers that draw there too
(they have `draws = True`; the fractions of an implicit quantile network are drawn for both).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...data.random import fold, normal, uniform
from .sharding import drawn_whole

Drawn = TypeVar("Drawn")


@dataclass
class Pass:
    """One pass of one network inside a loss."""

    key: Tensor  # int64 (), the address of this pass
    dtype: torch.dtype
    training: bool  # False: layers are at rest, as a target network's, and a live one's where a loss is only read
    statistics: dict[str, Tensor] | None  # where batch norm leaves its new running statistics; None: not kept
    target: bool = False  # whether the network is a target
    draws: int = field(default=0)
    _drawn: dict[int, Any] = field(default_factory=dict)  # by layer, see `once`

    def uniform(self, shape: tuple[int, ...], name: str | None = None) -> Tensor:
        """Uniform draws for samples at the address `name` of this pass; without one, at their position among those without."""
        address = self._address(name)
        return drawn_whole(shape, lambda whole: uniform(address, whole, self.dtype))

    def normal(self, shape: tuple[int, ...], name: str | None = None) -> Tensor:
        """Standard normal draws for weights, which all samples see, addressed in the same way."""
        return normal(self._address(name), shape, self.dtype)

    def once(self, layer: object, draw: Callable[[], Drawn]) -> Drawn:
        """What a layer drew at its first call in this pass: it has the same weights wherever it is asked in it."""
        if id(layer) not in self._drawn:
            self._drawn[id(layer)] = draw()
        return self._drawn[id(layer)]

    def _address(self, name: str | None) -> Tensor:
        if name is None:
            self.draws += 1
        return fold(self.key, self.draws if name is None else name)


@dataclass
class Numbers:
    """Standard normal numbers that a policy was handed for its draws, [B, n]: layers take their shares in the order of calls."""

    numbers: Tensor
    taken: int = 0

    def take(self, n: int) -> Tensor:
        """The next n of each sample, [B, n]."""
        self.taken += n
        return self.numbers[:, self.taken - n : self.taken]


_numbers: ContextVar[Numbers | None] = ContextVar("numbers", default=None)
_current: ContextVar[Pass | None] = ContextVar("pass", default=None)


def current_training() -> Pass | None:
    """The live network's pass under way, or None when layers are at rest."""
    now = _current.get()
    return now if now is not None and now.training else None


def current_draws() -> Pass | None:
    """The pass under way, a target network's too; None outside a loss, where nothing is drawn."""
    return _current.get()


def current_numbers() -> Numbers | None:
    """The numbers that layers draw by while a policy explores; None elsewhere."""
    return _numbers.get()


@contextmanager
def drawing_by(numbers: Tensor) -> Generator[None]:
    """Layers called inside draw by these, [B, n]."""
    token = _numbers.set(Numbers(numbers))
    try:
        yield
    finally:
        _numbers.reset(token)


@contextmanager
def under_way(now: Pass | None) -> Generator[None]:
    """Layers called inside belong to this pass."""
    token = _current.set(now)
    try:
        yield
    finally:
        _current.reset(token)
