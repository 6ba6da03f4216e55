"""The expected return: a number for each state and action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn
from torch.nn.functional import huber_loss

from ....data.config import Config
from ....data.spec import ObservationSpace
from ..layers import Linear
from ..vectors import Observation
from .reductions import over_members, picked

if TYPE_CHECKING:
    from ...definition import Group
    from ..encoders import Encoder

Loss = tuple[Tensor, dict[str, Tensor]]


class Mean(Config):
    """Q(s, a) = E[return]. Squared error for continuous actions; Huber, with its corner at 1, for discrete ones."""

    name: Literal["mean"] = "mean"

    def groups(self) -> tuple[Group, ...]:
        """No parameters have an optimiser of their own."""
        return ()

    def continuous(
        self, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int, *, share_encoder: bool = False
    ) -> MeanCritic:
        """Q_i(s, a) of `members` functions; with `share_encoder` all read the features of one encoder."""
        return MeanCritic(encoder, observation, action_size, members, share_encoder)

    def discrete(
        self, encoder: Encoder, observation: ObservationSpace, n_actions: int, members: int, *, share_encoder: bool = False
    ) -> DiscreteMeanCritic:
        """Q_i(s, ·) of `members` functions."""
        return DiscreteMeanCritic(encoder, observation, n_actions, members, share_encoder)


class MeanCritic(nn.Module):
    """Q_i(s, a) for each member i: [B, ...], [B, A] to [members, B]; with `first`, of the first so many members only."""

    def __init__(
        self, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int, share_encoder: bool
    ) -> None:
        super().__init__()
        self.encoder = encoder.build(observation, action_size, None if share_encoder else members)
        self.head = Linear(self.encoder.features, 1, members)

    def forward(self, observation: Observation, action: Tensor, first: int | None = None) -> Tensor:
        features = self.encoder(observation, action, first)
        if first is not None and features.ndim == 2:  # of one encoder that all share
            features = features.expand(first, *features.shape)
        return self.head(features)[..., 0]

    def distribution(self, observation: Observation, action: Tensor) -> Tensor:
        """One atom: [members, 1, B]."""
        return self(observation, action)[:, None]

    def td_loss(self, observation: Observation, action: Tensor, goal: Tensor) -> Loss:
        """(goal - Q_i(s, a))² of every member and sample, [members, B]; `goal` is [B] or [1, B]."""
        value = self(observation, action)
        error = value - goal
        return error.square(), {"td_error": over_members(error.abs()), "q_value": over_members(value)}


class DiscreteMeanCritic(nn.Module):
    """Q_i(s, ·) for each member i: [B, ...] to [members, B, actions]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, n_actions: int, members: int, share_encoder: bool) -> None:
        super().__init__()
        several = None if members == 1 else members  # one member takes the plain product, which is faster than a batched one
        self.alone = several is None
        self.encoder = encoder.build(observation, members=None if share_encoder else several)
        self.head = Linear(self.encoder.features, n_actions, several)

    def forward(self, observation: Observation) -> Tensor:
        values = self.head(self.encoder(observation))
        return values[None] if self.alone else values

    def distribution(self, observation: Observation) -> Tensor:
        """One atom for each action: [members, 1, B, actions]."""
        return self(observation)[:, None]

    def td_loss(self, observation: Observation, action: Tensor, goal: Tensor) -> Loss:
        """Huber loss of goal - Q_i(s, a) of every member and sample, [members, B]; `goal` is [B] or [1, B]."""
        value = picked(self(observation), action)
        error = huber_loss(value, goal.expand_as(value), reduction="none")
        return error, {"td_error": over_members((value - goal).abs()), "q_value": over_members(value)}
