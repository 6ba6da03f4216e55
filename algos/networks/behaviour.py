"""A model of the behaviour that data come from: a conditional variational auto-encoder of actions, and what perturbs them."""

from __future__ import annotations

from torch import Tensor, nn

from ...data.spec import ObservationSpace
from .encoders import Encoder
from .perceptrons import Linear, Observation

_LOG_STD = (-4.0, 15.0)  # where log σ of a latent is clipped: the authors' code of BCQ, BEAR, PLAS and SPOT


class LatentEncoder(nn.Module):
    """q(z|s, a), a normal distribution: [B, ...] and [B, A] to its mean and the logarithm of its deviation, each [B, Z]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, action_size: int, latent_size: int) -> None:
        super().__init__()
        self.encoder = encoder.build(observation, action_size)
        self.head = Linear(self.encoder.features, 2 * latent_size)

    def forward(self, observation: Observation, action: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.head(self.encoder(observation, action)).chunk(2, -1)
        return mean, log_std.clamp(*_LOG_STD)


class LatentDecoder(nn.Module):
    """D(s, z) in (-1, 1), or without a bound where it is `linear`: [B, ...] and [B, Z] to actions [B, A]."""

    def __init__(
        self, encoder: Encoder, observation: ObservationSpace, action_size: int, latent_size: int, *, linear: bool = False
    ) -> None:
        super().__init__()
        self.linear = linear
        self.encoder = encoder.build(observation, latent_size)
        self.head = Linear(self.encoder.features, action_size)

    def forward(self, observation: Observation, latent: Tensor) -> Tensor:
        raw = self.raw(observation, latent)
        return raw if self.linear else raw.tanh()

    def raw(self, observation: Observation, latent: Tensor) -> Tensor:
        return self.head(self.encoder(observation, latent))


class Perturbation(nn.Module):
    """ξ(s, a) in (-1, 1), which way an action is to be moved: [B, ...] and [B, A] to [B, A]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, action_size: int) -> None:
        super().__init__()
        self.encoder = encoder.build(observation, action_size)
        self.head = Linear(self.encoder.features, action_size)

    def forward(self, observation: Observation, action: Tensor) -> Tensor:
        return self.head(self.encoder(observation, action)).tanh()
