"""Critics of every Q-function: what they say of the return, how an ensemble speaks as one, and what is asked of them.

Critics of the expected return are here; those of distributions stand beside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss
from torch.utils import _pytree as pytree

from ....data.batch import Batch
from ....data.spec import ObservationSpace
from ..encoders import Encoder
from ..legal import legal_only, legal_samples
from ..perceptrons import Observation

Loss = tuple[Tensor, dict[str, Tensor]]
Choice = Tensor | Callable[[Tensor], Tensor]  # discrete actions [B], or what chooses them by expected values [members, B, actions]
Reduction = Literal["min", "max", "mean", "mix", "none"]

# ---- what is said of the return


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """N samples of the return of each state, with weights that sum to 1.

    Samples lie on the last axis but one and states on the last: [members, N, B] of an ensemble, [N, B] once it is reduced, and
    [members, actions, N, B] where every action has its own. Arithmetic is on the samples and leaves the weights, so that a goal is
    `values * discount + reward`; what is added or multiplied is a number or has the shape without the samples, such as [B].

    Attributes:
        atoms: The samples.
        weights: What each counts, as the atoms; None: 1 / N, as quantiles do.
    """

    atoms: Tensor
    weights: Tensor | None = None

    @property
    def mean(self) -> Tensor:
        """The expectation: the shape without the samples."""
        if self.weights is not None:
            return (self.weights * self.atoms).sum(-2)
        return self.atoms.squeeze(-2) if self.atoms.shape[-2] == 1 else self.atoms.mean(-2)

    def map(self, function: Callable[[Tensor], Tensor]) -> Values:
        """Applies a function that moves or picks entries to the atoms, and to the weights."""
        return Values(function(self.atoms), None if self.weights is None else function(self.weights))

    def of(self, action: Tensor) -> Values:
        """The values of the actions taken: [..., actions, N, B] and [B] to [..., N, B]."""

        def taken(x: Tensor) -> Tensor:
            x = x.movedim(-1, -3)  # [..., B, actions, N]: whole distributions lie together
            index = action[:, None, None].expand(*x.shape[:-2], 1, x.shape[-1])
            return x.gather(-2, index).squeeze(-2).mT

        return self.map(taken)

    def mixed(self, shares: Tensor) -> Values:
        """The values of an action that is drawn: [..., actions, N, B] and probabilities [B, actions] to [..., actions · N, B]."""
        weights = torch.ones_like(self.atoms) / self.atoms.shape[-2] if self.weights is None else self.weights
        return Values(self.atoms.flatten(-3, -2), (shares.mT.unsqueeze(-2) * weights).flatten(-3, -2))

    def onto(self, support: Tensor) -> Tensor:
        """Weights on evenly spaced atoms, [M] to [..., M, B]: two share each sample between them, and ends hold what is beyond.

        C51's projection (Bellemare, Dabney, Munos 2017, equation 7). What is no number makes weights that are none, of its state.
        """
        low, high, last = support[0], support[-1], support.shape[0] - 1
        place = (self.atoms.clamp(low, high) - low) * last / (high - low)
        below = place.floor().long().clamp(0, last - 1)
        share = place - below
        shares = torch.cat((1 - share, share), -2)
        shares = shares / place.shape[-2] if self.weights is None else shares * torch.cat((self.weights, self.weights), -2)
        nothing = torch.zeros_like(place[..., :1, :].expand(*place.shape[:-2], last + 1, place.shape[-1]))
        return nothing.scatter_add(-2, torch.cat((below, below + 1), -2), shares)

    def __add__(self, other: Tensor | float) -> Values:
        return Values(self.atoms + _beside(other), self.weights)

    def __mul__(self, other: Tensor | float) -> Values:
        return Values(self.atoms * _beside(other), self.weights)

    def __sub__(self, other: Tensor | float) -> Values:
        return Values(self.atoms - _beside(other), self.weights)

    __radd__, __rmul__ = __add__, __mul__


Goal = Values | Tensor  # what Q goes towards; a tensor [B] or [members, B] is a number for each, one sample of it


def as_values(goal: Goal) -> Values:
    return goal if isinstance(goal, Values) else Values(goal.unsqueeze(-2))


def _beside(other: Tensor | float) -> Any:
    return other.unsqueeze(-2) if isinstance(other, Tensor) and other.ndim > 1 else other


def _parts(values: Values) -> tuple[list[Tensor], None]:
    return ([values.atoms] if values.weights is None else [values.atoms, values.weights]), None


def _whole(parts: Sequence[Tensor], _: None) -> Values:
    return Values(*parts)


pytree.register_pytree_node(Values, _parts, _whole)  # pyright: ignore[reportArgumentType] - its context is nothing


Said = TypeVar("Said", Values, Tensor)


def reduced(x: Said, how: Reduction, mix: Tensor | float | None = None) -> Said:
    """One value, or one distribution, of an ensemble.

    Args:
        x: Of each member: expected values [members, ...], or `Values` [members, ..., N, B].
        how: "min" and "max" take, for each sample, the member with the least or largest expectation, its distribution whole;
            "mean" is the mean over members and "mix" λ min + (1 - λ) max, of distributions atom by atom, as of quantiles, but where
            atoms have weights the mixture, whose expectation is the same; "none" every member.
        mix: λ of "mix".

    Returns:
        The same without members; with "none" `x`.
    """
    match how:
        case "none":
            return x
        case "mean":
            return x.mean(0) if isinstance(x, Tensor) else _mean(x)
        case "mix":
            assert mix is not None, "mix needs its λ"
            if isinstance(x, Tensor):
                return mix * x.amin(0) + (1 - mix) * x.amax(0)
            return _mixed(_extreme(x, "min"), _extreme(x, "max"), mix)
        case "min" | "max":
            if isinstance(x, Tensor):
                return x.amin(0) if how == "min" else x.amax(0)
            return _extreme(x, how)


def _extreme(values: Values, how: Literal["min", "max"]) -> Values:
    if values.weights is None and values.atoms.shape[-2] == 1:
        return Values(values.atoms.amin(0) if how == "min" else values.atoms.amax(0))
    if values.atoms.shape[0] == 1:
        return values.map(lambda x: x[0])
    expected = values.mean
    chosen = (expected.argmin(0) if how == "min" else expected.argmax(0)).unsqueeze(-2)
    return values.map(lambda x: x.gather(0, chosen.expand(1, *x.shape[1:]))[0])


def _mean(values: Values) -> Values:
    if values.weights is None:
        return Values(values.atoms.mean(0))
    atoms, weights = (x.movedim(0, -3).flatten(-3, -2) for x in (values.atoms, values.weights))
    return Values(atoms, weights / values.atoms.shape[0])


def _mixed(least: Values, largest: Values, share: Tensor | float) -> Values:
    if least.weights is None or largest.weights is None:
        return Values(share * least.atoms + (1 - share) * largest.atoms)
    weights = torch.cat((share * least.weights, (1 - share) * largest.weights), -2)
    return Values(torch.cat((least.atoms, largest.atoms), -2), weights)


# ---- critics


@dataclass(frozen=True)
class CriticSpec:
    """The sizes of a critic.

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
        """Gives the distribution of the return, [members, N, B]."""
        return self.one(self.features(observation, action), None)

    def td_loss(self, observation: Observation, action: Tensor, goal: Values) -> Loss:
        return self.loss(self.features(observation, action), None, goal)


class DiscreteCritic(Critic):
    """Q_i(s, ·) for each member i: [B, ...] to [members, B, actions]; see `legal` for illegal actions."""

    def forward(self, observation: Observation) -> Tensor:
        return legal_only(self.expected(self.features(observation)), observation)

    def distributions(self, observation: Observation) -> Values:
        """Gives the distribution of every action's return, [members, actions, N, B]."""
        every = self.every(self.features(observation))
        return Values(legal_samples(every.atoms, observation), every.weights)

    def distribution(self, observation: Observation, action: Choice) -> Values:
        """Gives the distribution of an action's return, [members, N, B]; one pass chooses, among legal ones, and values."""
        choice = action if isinstance(action, Tensor) else lambda values: action(legal_only(values, observation))
        return self.one(self.features(observation), choice)

    def td_loss(self, observation: Observation, action: Tensor, goal: Values) -> Loss:
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
    """Picks the entries of the actions taken: [..., B, actions] and [B] to [..., B]."""
    return values.gather(-1, action.expand(values.shape[:-1])[..., None]).squeeze(-1)


def td_loss(critic: Any, batch: Batch, goal: Goal, features: Tensor | None = None) -> Loss:
    """The Q-function's own loss towards a goal, [members, B], of the transitions that each member learns from.

    Args:
        critic: As `nets.critic`.
        batch: With `extra["kept"]` [members, B] where members learn from transitions of their own.
        goal: What Q goes towards, `Values` [N, B] or of each member, or numbers [B]; no gradient reaches it.
        features: `critic.features(batch.observation)` of a critic of discrete actions, where a loss has more to read off them.
    """
    if features is None:
        loss, metrics = critic.td_loss(batch.observation, batch.action, as_values(goal))
    else:
        loss, metrics = critic.loss(features, batch.action, as_values(goal))
    return learned_from(loss, batch), metrics


def learned_from(loss: Tensor, batch: Batch) -> Tensor:
    """A loss [members, B] where each member learns from it; 0 elsewhere."""
    kept = batch.extra.get("kept")
    return loss if kept is None else loss * kept


# ---- the expected return


class MeanSettings(Protocol):
    """`Mean`, as its critics read it."""

    @property
    def loss(self) -> Literal["squared", "huber"] | None: ...

    def head(self, size_in: int, spec: CriticSpec, each: int, members: int | None) -> nn.Module: ...


class _Number(Critic):
    usual: ClassVar[Literal["squared", "huber"]]

    def __init__(self, config: MeanSettings, spec: CriticSpec) -> None:
        super().__init__(spec)
        self._loss = config.loss or self.usual
        self.head = config.head(self.encoder.features, spec, 1, self.several)

    def expected(self, features: Tensor) -> Tensor:
        values = self.head(features)
        return values if self.several else values[None]

    def every(self, features: Tensor) -> Values:
        return Values(self.expected(features).mT.unsqueeze(-2))

    def one(self, features: Tensor, action: Choice | None) -> Values:
        return Values(self._number(features, action).unsqueeze(-2))

    def _number(self, features: Tensor, action: Choice | None) -> Tensor:
        values = self.expected(features)
        if action is None:
            return values.squeeze(-1)
        return picked(values, action if isinstance(action, Tensor) else action(values))

    def loss(self, features: Tensor, action: Tensor | None, goal: Values) -> Loss:
        value, expected = self._number(features, action), goal.mean
        if self._loss == "squared":
            return report((value - expected).square(), value, expected)
        return report(huber_loss(value, expected.expand_as(value), reduction="none"), value, expected)


class MeanCritic(ContinuousCritic, _Number):
    """Q_i(s, a), a number."""

    usual = "squared"


class DiscreteMeanCritic(DiscreteCritic, _Number):
    """Q_i(s, ·), a number for each action."""

    usual = "huber"
