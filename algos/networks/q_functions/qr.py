"""Quantile regression (QR): the return's quantiles at N fixed fractions."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ....data.config import setting
from .config import HeadConfig
from .critics import ContinuousCritic, Critic, CriticSpec, DiscreteCritic, Loss, Values, report
from .quantiles import midpoints, quantile_huber


class QR(HeadConfig):
    """θ_i(s, a), i = 1 … N, the quantiles of the return at the fractions (i - 1/2) / N; Q is their mean.

    Paper: Dabney, Rowland, Bellemare, Munos: Distributional Reinforcement Learning with Quantile Regression, AAAI 2018,
    arXiv:1710.10044.
    """

    name: Literal["qr"] = "qr"
    n_quantiles: int = setting(32, "N: quantiles", source="d3rlpy 2.8.1, models/q_functions.py; the paper has 200", gt=0)

    def critics(self) -> tuple[type[QRCritic], type[DiscreteQRCritic]]:
        return QRCritic, DiscreteQRCritic


class _Quantiles(Critic):
    def __init__(self, config: QR, spec: CriticSpec) -> None:
        super().__init__(spec)
        self.config = config
        self.head = config.head(self.encoder.features, spec, config.n_quantiles, self.several)

    def _quantiles(self, features: Tensor) -> Tensor:
        """[members, B, outputs, N]."""
        quantiles = self.head(features).unflatten(-1, (-1, self.config.n_quantiles))
        return quantiles if self.several else quantiles[None]

    def every(self, features: Tensor) -> Values:
        return Values(self._quantiles(features).movedim(-3, -1))

    def expected(self, features: Tensor) -> Tensor:
        return self._quantiles(features).mean(-1)

    def loss(self, features: Tensor, action: Tensor | None, goal: Values) -> Loss:
        quantiles = self.one(features, action)
        fractions = midpoints(self.config.n_quantiles, quantiles.atoms)[:, None]
        return report(quantile_huber(quantiles.atoms, fractions, goal), quantiles.mean, goal.mean)


class QRCritic(ContinuousCritic, _Quantiles):
    """Q_i(s, a), quantiles at fixed fractions."""


class DiscreteQRCritic(DiscreteCritic, _Quantiles):
    """Q_i(s, ·), quantiles at fixed fractions."""
