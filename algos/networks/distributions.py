"""Distributions over actions, as stochastic policies give them: sampled by noise that is handed in. Numbers are in [-1, 1]."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import softplus

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
_LOG_2 = math.log(2)
_EDGE = 1 - 1e-6  # where tanh is inverted: actions beyond are taken for this one, as in d3rlpy 2.8.1


@dataclass(frozen=True)
class Gaussian:
    """N(mean, std²) for each entry of an action, cut off at ±1 when it is sampled; densities are the normal's own.

    Attributes:
        mean: [B, A], in [-1, 1].
        log_std: Logarithm of the standard deviation, [B, A] or [A].
    """

    mean: Tensor
    log_std: Tensor

    def mode(self) -> Tensor:
        """The likeliest action, [B, A]."""
        return self.mean

    def sample(self, noise: Tensor) -> Tensor:
        """The action that standard normal `noise` [B, A] leads to, [B, A]."""
        return (self.mean + self.log_std.exp() * noise).clamp(-1, 1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density of actions [B, A], [B]."""
        standard = (action - self.mean) * (-self.log_std).exp()
        return -(0.5 * standard.square() + self.log_std).sum(-1) - action.shape[-1] * _HALF_LOG_TAU


@dataclass(frozen=True)
class Point:
    """One action for sure, which has no density.

    Attributes:
        mean: The action, [B, A], in [-1, 1].
    """

    mean: Tensor

    def mode(self) -> Tensor:
        """The action."""
        return self.mean

    def sample(self, noise: Tensor) -> Tensor:
        """The action."""
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        """Minus the squared distance of actions [B, A], [B]: but for a constant, a normal log density of deviation 1/√2."""
        return -(action - self.mean).square().sum(-1)


@dataclass(frozen=True)
class SquashedGaussian:
    """tanh of N(mean, std²) for each entry of an action.

    The density has the factor 1 / (1 - tanh(u)²), whose logarithm is computed as 2 (u + softplus(-2u) - log 2): exact where tanh(u)
    rounds to ±1.

    Attributes:
        mean: Before tanh, [B, A].
        log_std: Logarithm of the standard deviation before tanh, [B, A] or [A].
    """

    mean: Tensor
    log_std: Tensor

    def mode(self) -> Tensor:
        """tanh(mean), [B, A]: the median, which is what acts where nothing is to be drawn."""
        return self.mean.tanh()

    def sample(self, noise: Tensor) -> Tensor:
        """The action that standard normal `noise` [B, A] leads to, [B, A]."""
        return (self.mean + self.log_std.exp() * noise).tanh()

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density of actions [B, A], [B]."""
        raw = action.clamp(-_EDGE, _EDGE).atanh()
        return self._log_prob(raw, (raw - self.mean) * (-self.log_std).exp())

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """An action and its log density, which inverts no tanh."""
        raw = self.mean + self.log_std.exp() * noise
        return raw.tanh(), self._log_prob(raw, noise)

    def _log_prob(self, raw: Tensor, standard: Tensor) -> Tensor:
        """Log density of tanh(raw), where `raw` is `standard` deviations off the mean."""
        each = 2 * (raw + softplus(-2 * raw)) - 0.5 * standard.square() - self.log_std
        return each.sum(-1) - raw.shape[-1] * (_HALF_LOG_TAU + 2 * _LOG_2)


@dataclass(frozen=True)
class Categorical:
    """One of n actions.

    Attributes:
        logits: Of each, [B, n]; their softmax is its probability.
    """

    logits: Tensor

    @property
    def probabilities(self) -> Tensor:
        """Of each action, [B, n]."""
        return self.logits.softmax(-1)

    def mode(self) -> Tensor:
        """The likeliest action, int64 [B]."""
        return self.logits.argmax(-1)

    def sample(self, noise: Tensor) -> Tensor:
        """The action that numbers `noise` [B, n], uniform on (0, 1), lead to, int64 [B]: the largest logit with Gumbel noise."""
        return (self.logits - (-noise.log()).log()).argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log probability of actions [B], [B]."""
        return self.logits.log_softmax(-1).gather(-1, action[..., None])[..., 0]
