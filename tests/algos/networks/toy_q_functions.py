"""A Q-function that d3ray does not have, written as a user would: a value in the logarithm's scale."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from d3ray.algos.networks.perceptrons import Linear
from d3ray.algos.networks.q_functions import (
    ContinuousCritic,
    Critic,
    CriticSpec,
    DiscreteCritic,
    QFunctionConfig,
    Values,
    picked,
    report,
)
from d3ray.data.config import setting


class Compressed(QFunctionConfig):
    """Q = sinh(x) of what the network gives; the loss is the square in x."""

    name: Literal["compressed"] = "compressed"
    scale: int = setting(1, "what Q is a multiple of", gt=0)

    def critics(self) -> tuple[type[CompressedCritic], type[DiscreteCompressedCritic]]:
        return CompressedCritic, DiscreteCompressedCritic


class Scaled(Critic):
    """One number for each output."""

    def __init__(self, config: Compressed, spec: CriticSpec) -> None:
        super().__init__(spec)
        self.scale = config.scale
        self.head = Linear(self.encoder.features, spec.outputs, self.several)

    def outputs(self, features: Tensor) -> Tensor:
        """[members, B, outputs]."""
        outputs = self.head(features)
        return outputs if self.several else outputs[None]

    def every(self, features: Tensor) -> Values:
        return Values(self.scale * self.outputs(features).sinh().mT.unsqueeze(-2))

    def loss(self, features: Tensor, action: Tensor | None, goal: Values) -> tuple[Tensor, dict[str, Tensor]]:
        found = self.outputs(features)
        found = found.squeeze(-1) if action is None else picked(found, action)
        return report(((goal.mean / self.scale).asinh() - found).square(), self.scale * found.sinh(), goal.mean)


class CompressedCritic(ContinuousCritic, Scaled):
    """Q_i(s, a)."""


class DiscreteCompressedCritic(DiscreteCritic, Scaled):
    """Q_i(s, ·)."""
