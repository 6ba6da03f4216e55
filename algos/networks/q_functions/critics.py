"""What critics of every Q-function share."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ....data.config import Config
from ....data.spec import ObservationSpace
from ...optimizers import Group
from ..encoders import Encoder
from ..vectors import Observation

Loss = tuple[Tensor, dict[str, Tensor]]
Choice = Tensor | Callable[[Tensor], Tensor]  # discrete actions [B], or what chooses them by expected values [members, B, actions]


class QFunctionConfig(Config):
    """Base of the settings of Q-functions."""

    def groups(self) -> tuple[Group, ...]:
        """Parameters that have an optimiser of their own."""
        return ()

    def continuous(
        self, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int, *, share_encoder: bool = False
    ) -> Critic:
        """The critic of continuous actions: `members` functions of [B, ...] and [B, A], which may share one encoder."""
        raise NotImplementedError

    def discrete(
        self, encoder: Encoder, observation: ObservationSpace, n_actions: int, members: int, *, share_encoder: bool = False
    ) -> Critic:
        """The critic of discrete actions: `members` functions of [B, ...], each with a value for every action."""
        raise NotImplementedError


class Critic(nn.Module):
    """An ensemble that reads the features of its own encoders, or with `share_encoder` of one."""

    def __init__(
        self, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int, *, share_encoder: bool
    ) -> None:
        super().__init__()
        self.members = members
        self.several = None if members == 1 else members  # one member takes plain products, which are faster than batched ones
        self.encoder = encoder.build(observation, action_size, None if share_encoder else self.several)

    def features(self, observation: Observation, action: Tensor | None = None, first: int | None = None) -> Tensor:
        """[members, B, F], or [B, F] where all members read the same; with `first`, of the first so many members only."""
        features = self.encoder(observation, action, first)
        if first is not None and features.ndim == 2 and self.several is not None:
            return features.expand(min(first, self.members), *features.shape)
        return features


def over_members(x: Tensor) -> Tensor:
    """The mean over members of what is [members, B], without a gradient: how metrics report an ensemble."""
    return x.detach().mean(0) if x.shape[0] > 1 else x.detach()[0]


def picked(values: Tensor, action: Tensor) -> Tensor:
    """What belongs to the actions taken: [..., B, actions] and [B] to [..., B]."""
    return values.gather(-1, action.expand(values.shape[:-1])[..., None])[..., 0]


def as_atoms(goal: Tensor) -> Tensor:
    """A goal [B], [N', B] or [members, N', B] with its axis of atoms."""
    return goal[None] if goal.ndim == 1 else goal
