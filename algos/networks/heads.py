"""Networks that algorithms name: policies and Q-functions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...data.spec import ObservationSpace
from .encoders import Encoder
from .layers import Linear
from .vectors import Flat, Observation


class DeterministicPolicy(nn.Module):
    """π(s) in (-1, 1): [B, ...] to [B, A]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, action_size: int) -> None:
        super().__init__()
        self.flat = Flat(observation)
        self.encoder = encoder.build(observation)
        self.head = Linear(self.encoder.features, action_size)

    def forward(self, observation: Observation) -> Tensor:
        return self.head(self.encoder(self.flat(observation))).tanh()


class CategoricalPolicy(nn.Module):
    """Logits of π(a|s): [B, ...] to [B, A]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, n_actions: int) -> None:
        super().__init__()
        self.flat = Flat(observation)
        self.encoder = encoder.build(observation)
        self.head = Linear(self.encoder.features, n_actions)

    def forward(self, observation: Observation) -> Tensor:
        return self.head(self.encoder(self.flat(observation)))


class QEnsemble(nn.Module):
    """Q_i(s, a) for each member i: [B, ...], [B, A] to [members, B]; with `first`, of the first so many members only."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int) -> None:
        super().__init__()
        self.flat = Flat(observation)
        self.encoder = encoder.build(observation, action_size, members)
        self.head = Linear(self.encoder.features, 1, members)

    def forward(self, observation: Observation, action: Tensor, first: int | None = None) -> Tensor:
        x = torch.cat((self.flat(observation), action), -1)
        return self.head(self.encoder(x if first is None else x.expand(first, *x.shape)))[..., 0]


class DiscreteQEnsemble(nn.Module):
    """Q_i(s, ·) for each member i: [B, ...] to [members, B, actions]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, n_actions: int, members: int) -> None:
        super().__init__()
        self.members = None if members == 1 else members  # one member takes the plain product, which is faster than a batched one
        self.flat = Flat(observation)
        self.encoder = encoder.build(observation, members=self.members)
        self.head = Linear(self.encoder.features, n_actions, self.members)

    def forward(self, observation: Observation) -> Tensor:
        values = self.head(self.encoder(self.flat(observation)))
        return values[None] if self.members is None else values
