"""Schedules of the learning rate: a share of the set rate for each gradient step.

A share is a function of the step alone, so a resumed run goes on exactly, and rows of a stack keep rates of their own.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from ...data.config import Config, setting
from ...data.errors import did_you_mean


class WarmUp(Config):
    """Rises to the set rate, and stays: (t + 1) / warm_up at step t < warm_up."""

    name: Literal["warm_up"] = "warm_up"
    warm_up: int = setting(..., "gradient steps until the set rate is reached", gt=0)

    def share(self, step: int) -> float:
        """Of the set rate, at a gradient step from 0."""
        return min((step + 1) / self.warm_up, 1.0)

    def shares(self, step: Tensor) -> Tensor:
        """Gives the shares at steps in a tensor, float64."""
        return ((step.double() + 1) / self.warm_up).clamp(max=1.0)

    def spent(self) -> int | None:
        """The first gradient step from which on the share is 0; None: there is none."""
        return None


class _Falling(Config):
    """Rises over `warm_up` steps, falls over `duration` steps more, and stays."""

    duration: int = setting(..., "gradient steps from the set rate to the final one", gt=0)
    final: float = setting(0.0, "share of the set rate that is left in the end", ge=0, le=1)
    warm_up: int = setting(0, "gradient steps until the set rate is reached, which come first", ge=0)

    def share(self, step: int) -> float:
        if step < self.warm_up:
            return (step + 1) / self.warm_up
        done = min((step - self.warm_up) / self.duration, 1.0)
        return self.final + (1 - self.final) * self._left(done)

    def shares(self, step: Tensor) -> Tensor:
        at = step.double()
        falling = self.final + (1 - self.final) * self._left_of(((at - self.warm_up) / self.duration).clamp(0.0, 1.0))
        return torch.where(at < self.warm_up, (at + 1) / self.warm_up, falling) if self.warm_up else falling

    def spent(self) -> int | None:
        return None if self.final else self.warm_up + self.duration

    def _left(self, done: float) -> float:
        """Gives the rest of the fall, 1 to 0, when the share `done` of its steps is done."""
        raise NotImplementedError

    def _left_of(self, done: Tensor) -> Tensor:
        raise NotImplementedError


class Cosine(_Falling):
    """Falls along half a cosine: final + (1 - final) (1 + cos π t / duration) / 2 (Loshchilov and Hutter 2017, equation 5)."""

    name: Literal["cosine"] = "cosine"

    def _left(self, done: float) -> float:
        return (1 + math.cos(math.pi * done)) / 2

    def _left_of(self, done: Tensor) -> Tensor:
        return (1 + (math.pi * done).cos()) / 2


class Linear(_Falling):
    """Falls along a line."""

    name: Literal["linear"] = "linear"

    def _left(self, done: float) -> float:
        return 1 - done

    def _left_of(self, done: Tensor) -> Tensor:
        return 1 - done


_NEEDS = {"cosine": "duration", "linear": "duration", "warm_up": "warm_up"}


def _read(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in _NEEDS:
        raise ValueError(f"there is no such schedule{did_you_mean(value, _NEEDS)}")
    raise ValueError(f"a schedule needs its length, as {{name: {value}, {_NEEDS[value]}: 100000}}")


Schedule = Annotated[Annotated[Cosine | Linear | WarmUp, Field(discriminator="name")], BeforeValidator(_read)]
