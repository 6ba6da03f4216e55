"""Augmentations of vectors, as in Laskin et al.: RAD (NeurIPS 2020), "random amplitude scaling".

d3rlpy's manual prints x + z and calls both a scaling. RAD, which it cites, multiplies, and z around 1 makes sense as a factor only:
that is followed. They act on what a network sees, so after the observation scaler.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator
from torch import Tensor

from ..config import setting
from .base import Augmentation, Draw

_MANUAL = "d3rlpy's manual of October 2020"


class _AmplitudeScaling(Augmentation):
    """Base of the two."""

    wants = "vectors"
    minimum: float = setting(0.8, "smallest factor", source=_MANUAL)
    maximum: float = setting(1.2, "largest factor", source=_MANUAL)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum is {self.minimum:g} and must not be more than maximum, which is {self.maximum:g}")
        return self

    def _scaled(self, x: Tensor, draw: Draw, size: int) -> Tensor:
        factor = draw.uniform("factor", self.minimum, self.maximum, size)
        return x.to(factor.dtype) * factor.reshape(x.shape[0], *[1] * (x.ndim - 2), size)


class SingleAmplitudeScaling(_AmplitudeScaling):
    """x · z, with one z ~ U(minimum, maximum) for each sample."""

    name: Literal["single_amplitude_scaling"] = "single_amplitude_scaling"

    def _on_vectors(self, x: Tensor, draw: Draw) -> Tensor:
        return self._scaled(x, draw, 1)


class MultipleAmplitudeScaling(_AmplitudeScaling):
    """x · z, with a z ~ U(minimum, maximum) for each entry of each sample."""

    name: Literal["multiple_amplitude_scaling"] = "multiple_amplitude_scaling"

    def _on_vectors(self, x: Tensor, draw: Draw) -> Tensor:
        return self._scaled(x, draw, x.shape[-1])
