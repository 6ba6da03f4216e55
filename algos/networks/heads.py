"""Networks that algorithms name: policies and value functions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...data.spec import ObservationSpace
from .distributions import Categorical, ClippedGaussian, Gaussian, Point, SquashedGaussian
from .encoders import Encoder
from .layers import Linear
from .legal import legal_only
from .vectors import Observation


class DeterministicPolicy(nn.Module):
    """π(s) in (-1, 1): [B, ...] to [B, A]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, action_size: int) -> None:
        super().__init__()
        self.encoder = encoder.build(observation)
        self.head = Linear(self.encoder.features, action_size)

    def forward(self, observation: Observation) -> Tensor:
        return self.raw(observation).tanh()

    def raw(self, observation: Observation) -> Tensor:
        """The action before tanh."""
        return self.head(self.encoder(observation))


class PointPolicy(DeterministicPolicy):
    """The same as a distribution, for losses that ask for log densities: [B, ...] to a `Point`."""

    def forward(self, observation: Observation) -> Point:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Point(super().forward(observation))


class CategoricalHead(nn.Module):
    """Logits of π(a|s) from features that another network makes: [B, F] to [B, A]."""

    def __init__(self, features: int, n_actions: int) -> None:
        super().__init__()
        self.head = Linear(features, n_actions)

    def forward(self, features: Tensor) -> Tensor:
        return self.head(features)


class CategoricalPolicy(nn.Module):
    """Logits of π(a|s): [B, ...] to [B, A]; see `legal` for illegal actions."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, n_actions: int) -> None:
        super().__init__()
        self.encoder = encoder.build(observation)
        self.head = Linear(self.encoder.features, n_actions)

    def forward(self, observation: Observation) -> Tensor:
        return legal_only(self.head(self.encoder(observation)), observation)


class SoftmaxPolicy(CategoricalPolicy):
    """The same as a distribution: [B, ...] to a `Categorical`."""

    def forward(self, observation: Observation) -> Categorical:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Categorical(super().forward(observation).log_softmax(-1))


class ValueFunction(nn.Module):
    """V(s): [B, ...] to [B]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace) -> None:
        super().__init__()
        self.encoder = encoder.build(observation)
        self.head = Linear(self.encoder.features, 1)

    def forward(self, observation: Observation) -> Tensor:
        return self.head(self.encoder(observation))[..., 0]


class _NormalHead(nn.Module):
    """Mean and standard deviation of a normal distribution over actions.

    Args:
        encoder, observation: What the head reads.
        action_size: A.
        log_std: Bounds of the logarithm of the standard deviation, which is clipped to them.
        state_dependent: Whether the deviation is an output of the network; else one parameter an entry, which starts at 1.
        spanning: Whether that parameter passes through a sigmoid that spans the bounds, in place of being clipped to them.
    """

    def __init__(
        self,
        encoder: Encoder,
        observation: ObservationSpace,
        action_size: int,
        log_std: tuple[float, float],
        state_dependent: bool,
        *,
        spanning: bool = False,
    ) -> None:
        super().__init__()
        self.bounds, self.spanning = log_std, spanning
        self.encoder = encoder.build(observation)
        self.head = Linear(self.encoder.features, 2 * action_size if state_dependent else action_size)
        self.log_std = None if state_dependent else nn.Parameter(torch.zeros(action_size))

    def parameters_at(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Mean [B, A] and log deviation, [B, A] or [A]."""
        mean, log_std = self.head(self.encoder(observation)), self.log_std
        if log_std is None:
            mean, log_std = mean.chunk(2, -1)
        elif self.spanning:
            low, high = self.bounds
            return mean, low + (high - low) * log_std.sigmoid()
        return mean, log_std.clamp(*self.bounds)


class GaussianPolicy(_NormalHead):
    """π(a|s), a normal distribution whose mean has passed through tanh: [B, ...] to a `Gaussian`."""

    def forward(self, observation: Observation) -> Gaussian:
        mean, log_std = self.parameters_at(observation)
        return Gaussian(mean.tanh(), log_std)


class ClippedGaussianPolicy(_NormalHead):
    """π(a|s), a normal distribution whose draws are cut off at ±1: [B, ...] to a `ClippedGaussian`."""

    def forward(self, observation: Observation) -> ClippedGaussian:
        return ClippedGaussian(*self.parameters_at(observation))


class SquashedGaussianPolicy(_NormalHead):
    """π(a|s), a normal distribution whose draws pass through tanh: [B, ...] to a `SquashedGaussian`."""

    def forward(self, observation: Observation) -> SquashedGaussian:
        return SquashedGaussian(*self.parameters_at(observation))


class Temperature(nn.Module):
    """A positive number that is learnt as its logarithm, and starts at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(()))

    def forward(self) -> Tensor:
        return self.log.exp()
