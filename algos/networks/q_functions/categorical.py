"""Categorical (C51): the probabilities of returns on evenly spaced atoms."""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from ....data.config import setting
from .config import HeadConfig
from .critics import ContinuousCritic, Critic, CriticSpec, DiscreteCritic, Loss, Values, picked, report

PAPER = "Bellemare, Dabney, Munos 2017, section 5"


class Categorical(HeadConfig):
    """p_k(s, a), the probability that the return is z_k, for N atoms from `v_min` to `v_max`; Q is their expectation.

    The loss is the cross entropy -Σ_k m_k log p_k with what of the goal falls to each atom, m (`Values.onto`). What lies beyond the
    ends counts at the ends: the atoms must span the returns of the data, scaled as rewards are.
    Paper: Bellemare, Dabney, Munos: A Distributional Perspective on Reinforcement Learning, ICML 2017, arXiv:1707.06887.
    """

    name: Literal["categorical"] = "categorical"
    v_min: float = setting(-10.0, "the first atom", source=PAPER)
    v_max: float = setting(10.0, "the last atom", source=PAPER)
    n_atoms: int = setting(51, "N: atoms", source=PAPER, gt=1)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.v_min >= self.v_max:
            raise ValueError(f"v_min is {self.v_min} and v_max {self.v_max}, which has to be greater")
        return self

    @property
    def span(self) -> tuple[float, float]:
        return self.v_min, self.v_max

    def critics(self) -> tuple[type[CategoricalCritic], type[DiscreteCategoricalCritic]]:
        return CategoricalCritic, DiscreteCategoricalCritic


class _Atoms(Critic):
    support: Tensor

    def __init__(self, config: Categorical, spec: CriticSpec) -> None:
        super().__init__(spec)
        self.n_atoms = config.n_atoms
        self.head = config.head(self.encoder.features, spec, config.n_atoms, self.several)
        self.register_buffer("support", torch.linspace(config.v_min, config.v_max, config.n_atoms))

    def _logits(self, features: Tensor) -> Tensor:
        """[members, B, outputs, N]."""
        logits = self.head(features).unflatten(-1, (-1, self.n_atoms))
        return logits if self.several else logits[None]

    def every(self, features: Tensor) -> Values:
        weights = self._logits(features).softmax(-1).movedim(-3, -1)
        return Values(self.support[:, None].expand_as(weights), weights)

    def expected(self, features: Tensor) -> Tensor:
        return self._logits(features).softmax(-1) @ self.support

    def loss(self, features: Tensor, action: Tensor | None, goal: Values) -> Loss:
        logits = self._logits(features).movedim(-1, -3)  # [members, N, B, outputs]
        logs = (logits.squeeze(-1) if action is None else picked(logits, action)).log_softmax(-2)
        value = (self.support[:, None] * logs.exp()).sum(-2)
        return report(-(goal.onto(self.support) * logs).sum(-2), value, goal.mean)


class CategoricalCritic(ContinuousCritic, _Atoms):
    """Q_i(s, a), probabilities of fixed atoms."""


class DiscreteCategoricalCritic(DiscreteCritic, _Atoms):
    """Q_i(s, ·), probabilities of fixed atoms."""
