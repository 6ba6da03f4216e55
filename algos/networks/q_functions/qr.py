"""Quantile regression (QR): the return's quantiles at N fixed fractions."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ....data.config import setting
from ....data.spec import ObservationSpace
from ..encoders import Encoder
from ..layers import Linear
from ..vectors import Observation
from .critics import Choice, Critic, Loss, QFunctionConfig, as_atoms
from .quantiles import midpoints, quantile_huber, report


class QR(QFunctionConfig):
    """θ_i(s, a), i = 1 … N, the quantiles of the return at the fractions (i - 1/2) / N; Q is their mean.

    Paper: Dabney, Rowland, Bellemare, Munos: Distributional Reinforcement Learning with Quantile Regression, AAAI 2018,
    arXiv:1710.10044.
    """

    name: Literal["qr"] = "qr"
    n_quantiles: int = setting(32, "N: quantiles", source="d3rlpy 2.8.1, models/q_functions.py; the paper has 200", gt=0)

    def continuous(
        self, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int, *, share_encoder: bool = False
    ) -> QRCritic:
        return QRCritic(self, encoder, observation, action_size, members, share_encoder=share_encoder)

    def discrete(
        self, encoder: Encoder, observation: ObservationSpace, n_actions: int, members: int, *, share_encoder: bool = False
    ) -> DiscreteQRCritic:
        return DiscreteQRCritic(self, encoder, observation, n_actions, members, share_encoder=share_encoder)


class QRCritic(Critic):
    """Q_i(s, a) for each member i: [B, ...], [B, A] to [members, B]; with `first`, of the first so many members only."""

    def __init__(
        self, config: QR, encoder: Encoder, observation: ObservationSpace, action_size: int, members: int, *, share_encoder: bool
    ) -> None:
        super().__init__(encoder, observation, action_size, members, share_encoder=share_encoder)
        self.config = config
        self.head = Linear(self.encoder.features, config.n_quantiles, self.several)

    def _quantiles(self, observation: Observation, action: Tensor, first: int | None = None) -> Tensor:
        """[members, B, N]."""
        quantiles = self.head(self.features(observation, action, first))
        return quantiles if self.several else quantiles[None]

    def forward(self, observation: Observation, action: Tensor, first: int | None = None) -> Tensor:
        return self._quantiles(observation, action, first).mean(-1)

    def distribution(self, observation: Observation, action: Tensor) -> Tensor:
        """[members, N, B]."""
        return self._quantiles(observation, action).transpose(-1, -2)

    def td_loss(self, observation: Observation, action: Tensor, goal: Tensor) -> Loss:
        """`quantile_huber` of every member and sample, [members, B]."""
        return _td_loss(self.distribution(observation, action), goal)


class DiscreteQRCritic(Critic):
    """Q_i(s, ·) for each member i: [B, ...] to [members, B, actions]."""

    def __init__(
        self, config: QR, encoder: Encoder, observation: ObservationSpace, n_actions: int, members: int, *, share_encoder: bool
    ) -> None:
        super().__init__(encoder, observation, 0, members, share_encoder=share_encoder)
        self.config, self.n_actions = config, n_actions
        self.head = Linear(self.encoder.features, n_actions * config.n_quantiles, self.several)

    def _quantiles(self, observation: Observation) -> Tensor:
        """[members, B, actions, N]."""
        quantiles = self.head(self.features(observation)).unflatten(-1, (self.n_actions, self.config.n_quantiles))
        return quantiles if self.several else quantiles[None]

    def forward(self, observation: Observation) -> Tensor:
        return self._quantiles(observation).mean(-1)

    def distribution(self, observation: Observation, action: Choice) -> Tensor:
        """[members, N, B]."""
        quantiles = self._quantiles(observation)
        taken = action if isinstance(action, Tensor) else action(quantiles.mean(-1))
        index = taken[:, None, None].expand(*quantiles.shape[:2], 1, quantiles.shape[-1])
        return quantiles.gather(-2, index)[..., 0, :].transpose(-1, -2)

    def td_loss(self, observation: Observation, action: Tensor, goal: Tensor) -> Loss:
        """`quantile_huber` of every member and sample, [members, B]."""
        return _td_loss(self.distribution(observation, action), goal)


def _td_loss(quantiles: Tensor, goal: Tensor) -> Loss:
    goal = as_atoms(goal)
    fractions = midpoints(quantiles.shape[-2], quantiles)[:, None]
    return report(quantile_huber(quantiles, fractions, goal), quantiles.mean(-2), goal)
