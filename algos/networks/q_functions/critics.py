"""What critics of every Q-function share: how they are made, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor, nn

from ....data.config import Config
from ....data.spec import ObservationSpace
from ...optimizers import Group
from ..encoders import Encoder
from ..legal import legal_only, legal_samples
from ..vectors import Observation
from .values import Values

Loss = tuple[Tensor, dict[str, Tensor]]
Kind = TypeVar("Kind", bound="Critic")
Maker = Callable[[Any, "CriticSpec"], Kind]  # a critic's class, of a Q-function's settings
Choice = Tensor | Callable[[Tensor], Tensor]  # discrete actions [B], or what chooses them by expected values [members, B, actions]


@dataclass(frozen=True)
class CriticSpec:
    """What a critic is made for.

    Attributes:
        encoder: What reads observations, and actions beside them.
        observation: The space of observations.
        action_size: Entries of an action that the critic reads; 0: none.
        outputs: Actions that it has values of: 1 where it reads one.
        members: Size of the ensemble.
        share_encoder: Whether the members have one encoder.
    """

    encoder: Encoder
    observation: ObservationSpace
    action_size: int
    outputs: int
    members: int
    share_encoder: bool = False


class QFunctionConfig(Config):
    """Base of the settings of Q-functions. A subclass has a field `name: Literal["…"] = "…"` and writes `critics`."""

    def critics(self) -> tuple[Maker[ContinuousCritic], Maker[DiscreteCritic]]:
        """The classes of its critics, of continuous and of discrete actions."""
        raise NotImplementedError

    @property
    def span(self) -> tuple[float, float] | None:
        """The least and the largest return that it can tell; None: any."""
        return None

    def groups(self) -> tuple[Group, ...]:
        """Parameters that have an optimiser of their own."""
        return ()

    def continuous(
        self, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int, *, share_encoder: bool = False
    ) -> ContinuousCritic:
        """The critic of continuous actions: `members` functions of [B, ...] and [B, A], which may share one encoder."""
        return self.critics()[0](self, CriticSpec(encoder, observation, action_size, 1, members, share_encoder))

    def discrete(
        self, encoder: Encoder, observation: ObservationSpace, n_actions: int, members: int, *, share_encoder: bool = False
    ) -> DiscreteCritic:
        """The critic of discrete actions: `members` functions of [B, ...], each with a value for every action."""
        return self.critics()[1](self, CriticSpec(encoder, observation, 0, n_actions, members, share_encoder))


class Critic(nn.Module):
    """An ensemble that reads the features of its own encoders, or with `share_encoder` of one.

    A Q-function writes `every` and `loss`; `expected` and `one` only where there is a cheaper way.
    """

    def __init__(self, spec: CriticSpec) -> None:
        super().__init__()
        self.members = members = spec.members
        self.several = None if members == 1 else members  # one member takes plain products, which are faster than batched ones
        self.encoder = spec.encoder.build(spec.observation, spec.action_size, None if spec.share_encoder else self.several)

    def features(self, observation: Observation, action: Tensor | None = None, first: int | None = None) -> Tensor:
        """[members, B, F], or [B, F] where all members read the same; with `first`, of the first so many members only."""
        features = self.encoder(observation, action, first)
        if first is not None and features.ndim == 2 and self.several is not None:
            return features.expand(min(first, self.members), *features.shape)
        return features

    def every(self, features: Tensor) -> Values:
        """The values of every output, [members, outputs, N, B]."""
        raise NotImplementedError

    def loss(self, features: Tensor, action: Tensor | None, goal: Values) -> Loss:
        """The loss of every member and sample against a goal [N', B] or [members, N', B], [members, B], and its metrics.

        `action` picks one of several outputs.
        """
        raise NotImplementedError

    def expected(self, features: Tensor) -> Tensor:
        """The expected value of every output, [members, B, outputs]."""
        return self.every(features).mean.mT

    def one(self, features: Tensor, action: Choice | None) -> Values:
        """The values of the one output, or of the outputs `action`, [members, N, B]."""
        every = self.every(features)
        if action is None:
            return every.map(lambda x: x.squeeze(-3))
        return every.of(action if isinstance(action, Tensor) else action(every.mean.mT))


class ContinuousCritic(Critic):
    """Q_i(s, a) for each member i: [B, ...], [B, A] to [members, B]; with `first`, of the first so many members only."""

    def forward(self, observation: Observation, action: Tensor, first: int | None = None) -> Tensor:
        return self.expected(self.features(observation, action, first)).squeeze(-1)

    def distribution(self, observation: Observation, action: Tensor) -> Values:
        """What the return may be, [members, N, B]."""
        return self.one(self.features(observation, action), None)

    def td_loss(self, observation: Observation, action: Tensor, goal: Values) -> Loss:
        """The losses of every member and sample, [members, B]."""
        return self.loss(self.features(observation, action), None, goal)


class DiscreteCritic(Critic):
    """Q_i(s, ·) for each member i: [B, ...] to [members, B, actions]; see `legal` for illegal actions."""

    def forward(self, observation: Observation) -> Tensor:
        return legal_only(self.expected(self.features(observation)), observation)

    def distributions(self, observation: Observation) -> Values:
        """What the return of every action may be, [members, actions, N, B]."""
        every = self.every(self.features(observation))
        return Values(legal_samples(every.atoms, observation), every.weights)

    def distribution(self, observation: Observation, action: Choice) -> Values:
        """What the return of an action may be, [members, N, B]; one pass serves to choose, among legal ones, and to value."""
        choice = action if isinstance(action, Tensor) else lambda values: action(legal_only(values, observation))
        return self.one(self.features(observation), choice)

    def td_loss(self, observation: Observation, action: Tensor, goal: Values) -> Loss:
        """The losses of every member and sample, [members, B]."""
        return self.loss(self.features(observation), action, goal)


def over_members(x: Tensor) -> Tensor:
    """The mean over members of what is [members, B]: how metrics report an ensemble."""
    return x.mean(0) if x.shape[0] > 1 else x.squeeze(0)


def report(loss: Tensor, value: Tensor, goal: Tensor, **more: Tensor) -> Loss:
    """A loss with the metrics of a critic; `value` and `goal` are expectations, [members, B] and what broadcasts to it."""
    value = value.detach()
    error = (goal - value).abs()
    return loss, {"td_error": over_members(error), "q_value": over_members(value), **more}


def picked(values: Tensor, action: Tensor) -> Tensor:
    """What belongs to the actions taken: [..., B, actions] and [B] to [..., B]."""
    return values.gather(-1, action.expand(values.shape[:-1])[..., None]).squeeze(-1)
