"""Networks of policies that generate: where an action that is still noise moves, at a time of its way."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...data.spec import ObservationSpace
from .encoders import Encoder
from .perceptrons import Linear, Observation


class VectorField(nn.Module):
    """v(s, x, t), any real numbers: [B, ...], [B, A] and times [B, 1] to [B, A].

    Args:
        encoder, observation: What the last layer reads, with x and t beside the observation.
        size: A.
        timed: Whether it is given times; else it is v(s, x), as of what takes one step from noise to an action.
    """

    def __init__(self, encoder: Encoder, observation: ObservationSpace, size: int, *, timed: bool = True) -> None:
        super().__init__()
        self.encoder = encoder.build(observation, size + timed)
        self.head = Linear(self.encoder.features, size)

    def forward(self, observation: Observation, x: Tensor, time: Tensor | None = None) -> Tensor:
        return self.head(self.encoder(observation, x if time is None else torch.cat((x, time), -1)))


def integrated(field: Callable[[Tensor, Tensor], Tensor], x: Tensor, n: int) -> Tensor:
    """Follow dx/dt = v(x, t) from t = 0 to 1 in n steps of Euler's method: [B, A] to [B, A]."""
    for k in range(n):
        x = x + field(x, torch.full_like(x[..., :1], k / n)) / n
    return x
