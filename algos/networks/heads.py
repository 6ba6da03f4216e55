"""Networks that algorithms name: policies and Q-functions."""

from __future__ import annotations

from torch import Tensor, nn

from ...data.spec import ObservationSpace
from .encoders import Encoder
from .layers import Linear
from .vectors import Observation


class DeterministicPolicy(nn.Module):
    """π(s) in (-1, 1): [B, ...] to [B, A]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, action_size: int) -> None:
        super().__init__()
        self.encoder = encoder.build(observation)
        self.head = Linear(self.encoder.features, action_size)

    def forward(self, observation: Observation) -> Tensor:
        return self.head(self.encoder(observation)).tanh()


class CategoricalPolicy(nn.Module):
    """Logits of π(a|s): [B, ...] to [B, A]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, n_actions: int) -> None:
        super().__init__()
        self.encoder = encoder.build(observation)
        self.head = Linear(self.encoder.features, n_actions)

    def forward(self, observation: Observation) -> Tensor:
        return self.head(self.encoder(observation))
