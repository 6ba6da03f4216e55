"""Q-functions that d3ray does not have, written as a user would: C51's, and Rainbow's with its two heads."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from d3ray.algos.networks.dueling import Dueling
from d3ray.algos.networks.layers import Linear
from d3ray.algos.networks.noisy import NoisyLinear
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


class Categorical(QFunctionConfig):
    """Probabilities p_k(s, a) of N atoms; the loss is the cross entropy with the goal's projection (Bellemare et al. 2017)."""

    name: Literal["categorical"] = "categorical"
    low: float = setting(-5.0, "the first atom")
    high: float = setting(5.0, "the last atom")
    n_atoms: int = setting(11, "N", gt=1)

    def critics(self) -> tuple[type[CategoricalCritic], type[DiscreteCategoricalCritic]]:
        return CategoricalCritic, DiscreteCategoricalCritic

    def head(self, size: int, spec: CriticSpec, members: int | None) -> nn.Module:
        return Linear(size, spec.outputs * self.n_atoms, members)


class Rainbow(Categorical):
    """The same with a dueling head of noisy layers (Hessel et al. 2018)."""

    name: Literal["rainbow"] = "rainbow"  # type: ignore[assignment] # pyright: ignore[reportIncompatibleVariableOverride]
    hidden: int = setting(6, "width of each stream", gt=0)

    def head(self, size: int, spec: CriticSpec, members: int | None) -> nn.Module:
        return Dueling(size, spec.outputs, self.n_atoms, members, hidden=self.hidden, layer=NoisyLinear)


class Atoms(Critic):
    """Probabilities of fixed atoms."""

    support: Tensor

    def __init__(self, config: Categorical, spec: CriticSpec) -> None:
        super().__init__(spec)
        self.n_atoms = config.n_atoms
        self.head = config.head(self.encoder.features, spec, self.several)
        self.register_buffer("support", torch.linspace(config.low, config.high, config.n_atoms))

    def logits(self, features: Tensor) -> Tensor:
        """[members, outputs, N, B]."""
        logits = self.head(features).unflatten(-1, (-1, self.n_atoms))
        return (logits if self.several else logits[None]).movedim(-3, -1)

    def every(self, features: Tensor) -> Values:
        weights = self.logits(features).softmax(-2)
        return Values(self.support[:, None].expand_as(weights), weights)

    def loss(self, features: Tensor, action: Tensor | None, goal: Values) -> tuple[Tensor, dict[str, Tensor]]:
        """-Σ_k Φ(goal)_k log p_k(s, a) of every member and sample, [members, B]."""
        logs = self.logits(features).log_softmax(-2).movedim(-3, -1)  # [members, N, B, outputs]
        logs = logs.squeeze(-1) if action is None else picked(logs, action)
        value = (self.support[:, None] * logs.exp()).sum(-2)
        return report(-(goal.onto(self.support) * logs).sum(-2), value, goal.mean)


class CategoricalCritic(ContinuousCritic, Atoms):
    """Q_i(s, a)."""


class DiscreteCategoricalCritic(DiscreteCritic, Atoms):
    """Q_i(s, ·)."""
