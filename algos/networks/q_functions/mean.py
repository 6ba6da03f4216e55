"""The expected return: a number for each state and action."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn.functional import huber_loss

from .critics import Choice, ContinuousCritic, Critic, CriticSpec, DiscreteCritic, Loss, picked, report
from .heads import HeadConfig
from .values import Values


class Mean(HeadConfig):
    """Q(s, a) = E[return]. Squared error for continuous actions; Huber, with its corner at 1, for discrete ones."""

    name: Literal["mean"] = "mean"

    def critics(self) -> tuple[type[MeanCritic], type[DiscreteMeanCritic]]:
        return MeanCritic, DiscreteMeanCritic


class _Number(Critic):
    """One atom."""

    def __init__(self, config: Mean, spec: CriticSpec) -> None:
        super().__init__(spec)
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


class MeanCritic(ContinuousCritic, _Number):
    """Q_i(s, a), a number."""

    def loss(self, features: Tensor, action: Tensor | None, goal: Values) -> Loss:
        """(goal - Q_i(s, a))² of every member and sample, [members, B]."""
        value, expected = self._number(features, action), goal.mean
        return report((value - expected).square(), value, expected)


class DiscreteMeanCritic(DiscreteCritic, _Number):
    """Q_i(s, ·), a number for each action."""

    def loss(self, features: Tensor, action: Tensor | None, goal: Values) -> Loss:
        """Huber loss of goal - Q_i(s, a) of every member and sample, [members, B]."""
        value, expected = self._number(features, action), goal.mean
        return report(huber_loss(value, expected.expand_as(value), reduction="none"), value, expected)
