"""The expected return: a number for each state and action."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor
from torch.nn.functional import huber_loss

from ....data.config import setting
from .critics import Choice, ContinuousCritic, Critic, CriticSpec, DiscreteCritic, Loss, picked, report
from .heads import HeadConfig
from .values import Values


class Mean(HeadConfig):
    """Q(s, a) = E[return].

    Only the squared error estimates it. The Huber loss goes with a median beyond its corner: it is steadier while errors of
    bootstrapping are larger than the noise of rewards, and wrong where that noise is larger than the corner.
    """

    name: Literal["mean"] = "mean"
    loss: Literal["squared", "huber"] | None = setting(
        None, "squared, or huber with its corner at 1; null: squared for continuous actions, else huber", since="0.2"
    )

    def is_huber(self, *, discrete: bool) -> bool:
        """Whether critics of such actions have the Huber loss."""
        return (self.loss or self.critics()[discrete].usual) == "huber"

    def critics(self) -> tuple[type[MeanCritic], type[DiscreteMeanCritic]]:
        return MeanCritic, DiscreteMeanCritic


class _Number(Critic):
    """One atom."""

    usual: ClassVar[Literal["squared", "huber"]]

    def __init__(self, config: Mean, spec: CriticSpec) -> None:
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
        """The loss of goal - Q_i(s, a) of every member and sample, [members, B]."""
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
