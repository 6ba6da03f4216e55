"""The expected return: a number for each state and action."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn.functional import huber_loss

from ....data.spec import ObservationSpace
from ..encoders import Encoder
from ..layers import Linear
from ..vectors import Observation
from .critics import Choice, Critic, Loss, QFunctionConfig, over_members, picked


class Mean(QFunctionConfig):
    """Q(s, a) = E[return]. Squared error for continuous actions; Huber, with its corner at 1, for discrete ones."""

    name: Literal["mean"] = "mean"

    def continuous(
        self, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int, *, share_encoder: bool = False
    ) -> MeanCritic:
        return MeanCritic(encoder, observation, action_size, members, share_encoder=share_encoder)

    def discrete(
        self, encoder: Encoder, observation: ObservationSpace, n_actions: int, members: int, *, share_encoder: bool = False
    ) -> DiscreteMeanCritic:
        return DiscreteMeanCritic(encoder, observation, n_actions, members, share_encoder=share_encoder)


class MeanCritic(Critic):
    """Q_i(s, a) for each member i: [B, ...], [B, A] to [members, B]; with `first`, of the first so many members only."""

    def __init__(
        self, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int, *, share_encoder: bool
    ) -> None:
        super().__init__(encoder, observation, action_size, members, share_encoder=share_encoder)
        self.head = Linear(self.encoder.features, 1, self.several)

    def forward(self, observation: Observation, action: Tensor, first: int | None = None) -> Tensor:
        value = self.head(self.features(observation, action, first))[..., 0]
        return value if self.several else value[None]

    def distribution(self, observation: Observation, action: Tensor) -> Tensor:
        """One atom: [members, 1, B]."""
        return self(observation, action)[:, None]

    def td_loss(self, observation: Observation, action: Tensor, goal: Tensor) -> Loss:
        """(goal - Q_i(s, a))² of every member and sample, [members, B]."""
        value = self(observation, action)
        error = value - _only_atom(goal)
        return error.square(), {"td_error": over_members(error.abs()), "q_value": over_members(value)}


class DiscreteMeanCritic(Critic):
    """Q_i(s, ·) for each member i: [B, ...] to [members, B, actions]."""

    def __init__(
        self, encoder: Encoder, observation: ObservationSpace, n_actions: int, members: int, *, share_encoder: bool
    ) -> None:
        super().__init__(encoder, observation, 0, members, share_encoder=share_encoder)
        self.head = Linear(self.encoder.features, n_actions, self.several)

    def forward(self, observation: Observation) -> Tensor:
        values = self.head(self.features(observation))
        return values if self.several else values[None]

    def distribution(self, observation: Observation, action: Choice) -> Tensor:
        """One atom: [members, 1, B]."""
        values = self(observation)
        return picked(values, action if isinstance(action, Tensor) else action(values))[:, None]

    def td_loss(self, observation: Observation, action: Tensor, goal: Tensor) -> Loss:
        """Huber loss of goal - Q_i(s, a) of every member and sample, [members, B]."""
        value, goal = picked(self(observation), action), _only_atom(goal)
        error = huber_loss(value, goal.expand_as(value), reduction="none")
        return error, {"td_error": over_members((value - goal).abs()), "q_value": over_members(value)}


def _only_atom(goal: Tensor) -> Tensor:
    """A goal [B], [1, B] or [members, 1, B] as what is subtracted from [members, B]."""
    return goal[:, 0] if goal.ndim == 3 else goal
