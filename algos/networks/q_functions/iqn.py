r"""Implicit quantile networks (IQN): the return's quantile at any fraction.

    Z_τ(s, a) = head(ψ(s, a) ⊙ φ(τ)),    φ(τ) = relu(W cos(π i τ)_{i = 1 … n} + b)

Z is linear in φ, which saves most of the work: the expected value is the head at the mean of φ, and the quantiles of one action are
products of φ with one vector, so that ψ ⊙ φ of every fraction is never made.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ....data.config import setting
from ..perceptrons import Linear, Observation
from ..training import current_draws
from .config import HeadConfig
from .critics import Choice, ContinuousCritic, Critic, CriticSpec, DiscreteCritic, Loss, Values, report
from .quantiles import at_once, midpoints, quantile_huber

PEER = "d3rlpy 2.8.1, models/q_functions.py"


class IQN(HeadConfig):
    """Quantiles Z_τ(s, a) at fractions τ that are drawn, uniform on (0, 1), for each sample; Q is their mean at K midpoints.

    Paper: Dabney, Ostrovski, Silver, Munos: Implicit Quantile Networks for Distributional Reinforcement Learning, ICML 2018,
    arXiv:1806.06923. Choices: cosines begin with i = 1, as in Dopamine's code and d3rlpy; the paper begins with i = 0, a constant
    that the bias is already. Greedy actions and the actor's loss take Q at the fractions (k - 1/2) / K; the paper draws them,
    d3rlpy's lie from 0 to 1 with both ends. Members of an ensemble have the same fractions.
    """

    name: Literal["iqn"] = "iqn"
    n_quantiles: int = setting(64, "N: fractions drawn for the critic", source=f"{PEER}; Dopamine, iqn.gin", gt=0)
    n_target_quantiles: int = setting(64, "N': fractions drawn for its target", source="Dopamine, iqn.gin; d3rlpy has N'", gt=0)
    n_greedy_quantiles: int = setting(32, "K: fractions of an expected value", source=f"{PEER}; Dopamine, iqn.gin", gt=0)
    embed_size: int = setting(64, "n: cosines of a fraction", source=f"{PEER}; Dabney et al. 2018, section 3", gt=0)
    share_fractions: bool = setting(False, "whether the samples of a batch have the same fractions, which is far cheaper")

    def critics(self) -> tuple[type[IQNCritic], type[DiscreteIQNCritic]]:
        return IQNCritic, DiscreteIQNCritic


class ImplicitCritic(Critic):
    """An ensemble whose quantiles are read at fractions that are given to it.

    Fractions are [members or 1, B or 1, N]: one in front of B where all samples have the same.
    """

    def __init__(self, config: HeadConfig, spec: CriticSpec, embed_size: int) -> None:
        super().__init__(spec)
        self.embed_size = embed_size
        self.embed = Linear(embed_size, self.encoder.features, spec.members)
        self.head = config.affine_head(self.encoder.features, spec, spec.members)

    def features(self, observation: Observation, action: Tensor | None = None, first: int | None = None) -> Tensor:
        features = super().features(observation, action, first)
        return features.expand(self.members, *features.shape) if features.ndim == 2 else features

    def embedded(self, fractions: Tensor, members: int) -> Tensor:
        """φ at fractions, [members, B or 1, N, F]."""
        steps = math.pi * torch.arange(1, self.embed_size + 1, dtype=fractions.dtype, device=fractions.device)
        cosines = (fractions.flatten(1)[..., None] * steps).cos()  # [members or 1, B N, n]
        return self.embed(cosines.expand(members, *cosines.shape[1:])).relu_().unflatten(1, fractions.shape[1:])

    def expected_at(self, features: Tensor, fractions: Tensor, widths: Tensor | None = None) -> Tensor:
        """The mean over fractions, or the sum weighted by `widths` (shaped as they), of every output: [members, B, outputs]."""
        embedded = self.embedded(fractions, features.shape[0])
        mean = embedded.mean(-2) if widths is None else (widths[..., None] * embedded).sum(-2)
        return self.head(features * mean)

    def quantiles(self, features: Tensor, fractions: Tensor, action: Tensor | None = None) -> Tensor:
        """Z of the one output, or of the outputs `action` [B], at fractions: [members, N, B]."""
        weight, bias = self.head.affine()  # [members, F, outputs], [members, 1, outputs]
        weight = weight.mT
        if action is not None:
            weight, bias = weight[:, action], bias[..., action]  # [members, B, F], [members, 1, B]
        factor = features * weight  # [members, B, F]
        members, _, size = factor.shape
        if fractions.shape[1] == 1:
            return torch.baddbmm(bias, self.embedded(fractions, members)[:, 0], factor.transpose(-1, -2))
        several = at_once(members * fractions.shape[2] * size, factor)
        parts = zip(factor.split(several, 1), fractions.split(several, 1), strict=True)
        products = [(self.embedded(part, members) * of[:, :, None]).sum(-1) for of, part in parts]
        return (products[0] if len(products) == 1 else torch.cat(products, 1)).transpose(-1, -2) + bias

    def fractions(self, features: Tensor) -> Tensor:
        """Where the quantiles of a distribution lie, for features [members, B, F]."""
        raise NotImplementedError

    def every(self, features: Tensor) -> Values:
        """All actions of a state have the same fractions."""
        embedded = self.embedded(self.fractions(features), features.shape[0])
        product = features[:, :, None] * embedded  # [members, B, N, F]
        return Values(self.head(product.flatten(1, 2)).unflatten(1, product.shape[1:3]).movedim(1, -1).movedim(1, -2))

    def one(self, features: Tensor, action: Choice | None) -> Values:
        taken = action if action is None or isinstance(action, Tensor) else action(self.expected(features))
        return Values(self.quantiles(features, self.fractions(features), taken))


class _Drawn(ImplicitCritic):
    draws = True

    def __init__(self, config: IQN, spec: CriticSpec) -> None:
        super().__init__(config, spec, config.embed_size)
        self.config = config

    def expected(self, features: Tensor) -> Tensor:
        return self.expected_at(features, midpoints(self.config.n_greedy_quantiles, features)[None, None])

    def fractions(self, features: Tensor) -> Tensor:
        """Drawn in a loss: of a live network N, of a target N'. At rest K midpoints."""
        now = current_draws()
        if now is None:
            return midpoints(self.config.n_greedy_quantiles, features)[None, None]
        n = self.config.n_target_quantiles if now.target else self.config.n_quantiles
        return now.uniform((1, 1 if self.config.share_fractions else features.shape[1], n), "fractions")

    def loss(self, features: Tensor, action: Tensor | None, goal: Values) -> Loss:
        fractions = self.fractions(features)
        quantiles = self.quantiles(features, fractions, action)
        return report(quantile_huber(quantiles, fractions.mT, goal), quantiles.mean(-2), goal.mean)


class IQNCritic(ContinuousCritic, _Drawn):
    """Q_i(s, a), quantiles at drawn fractions."""


class DiscreteIQNCritic(DiscreteCritic, _Drawn):
    """Q_i(s, ·), quantiles at drawn fractions."""
