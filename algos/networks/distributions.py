"""Distributions over actions, as stochastic policies give them, sampled by noise that is handed in; continuous ones in [-1, 1]."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch.special import log_ndtr

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


class ClippedGaussian(Gaussian):
    """A draw of N(mean, std²) for each entry of an action, cut off at ±1, with the probability of what is acted.

    An entry at ±1 has the probability of all that is cut off there, one between them the normal's density (Fujita and Maeda 2018,
    arXiv:1802.07564, section 3). Entropy and divergence are of the normals before the cut.
    """

    def mode(self) -> Tensor:
        return self.mean.clamp(-1, 1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log density, or log probability at the edges, of actions [B, A], [B]."""
        each = (-self.log_std).exp()
        inside = -0.5 * ((action - self.mean) * each).square() - self.log_std - _HALF_LOG_TAU
        below, above = log_ndtr((-1 - self.mean) * each), log_ndtr((self.mean - 1) * each)
        return inside.where(action > -1, below).where(action < 1, above).sum(-1)

    def entropy(self) -> Tensor:
        return (self.log_std + 0.5 + _HALF_LOG_TAU).expand(self.mean.shape).sum(-1)

    def parameters(self) -> Tensor:
        return torch.cat((self.mean, self.log_std.expand(self.mean.shape)), -1)

    @classmethod
    def of(cls, parameters: Tensor) -> ClippedGaussian:
        return cls(*parameters.chunk(2, -1))

    def divergence_from(self, parameters: Tensor) -> Tensor:
        """KL(other ‖ this), [B]: no cut makes it larger."""
        mean, log_std = parameters.chunk(2, -1)
        spread = (log_std - self.log_std).exp().square() + ((mean - self.mean) * (-self.log_std).exp()).square()
        return (self.log_std - log_std + 0.5 * spread - 0.5).sum(-1)


class SquashedGaussian(Gaussian):
    """tanh of N(mean, std²) for each entry of an action; mean and deviation are those before tanh, and the mode is the median.

    The density has the factor 1 / (1 - tanh(u)²), whose logarithm is computed as 2 (u + softplus(-2u) - log 2): exact where tanh(u)
    rounds to ±1.
    """

    def mode(self) -> Tensor:
        return self.mean.tanh()

    def sample(self, noise: Tensor) -> Tensor:
        return (self.mean + self.log_std.exp() * noise).tanh()

    def log_prob(self, action: Tensor) -> Tensor:
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
class Point:
    """One action for sure, which has no density.

    Attributes:
        mean: The action, [B, A], in [-1, 1].
    """

    mean: Tensor

    def mode(self) -> Tensor:
        return self.mean

    def sample(self, noise: Tensor) -> Tensor:
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        """Minus the squared distance of actions [B, A], [B]: but for a constant, a normal log density of deviation 1/√2."""
        return -(action - self.mean).square().sum(-1)


@dataclass(frozen=True)
class Categorical:
    """One of several actions.

    Attributes:
        log_probs: Logarithms of their probabilities, [B, A].
    """

    log_probs: Tensor

    @property
    def probs(self) -> Tensor:
        return self.log_probs.exp()

    def mode(self) -> Tensor:
        """The likeliest action, [B]."""
        return self.log_probs.argmax(-1)

    def sample(self, noise: Tensor) -> Tensor:
        """The action that uniform `noise` [B, A] leads to, [B]: with numbers of a Gumbel distribution added, the largest."""
        return (self.log_probs - (-noise.log()).log()).argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability of actions [B], [B]."""
        return self.log_probs.gather(-1, action[:, None]).squeeze(-1)

    def entropy(self) -> Tensor:
        """-Σ_a π(a) log π(a), [B]."""
        return -(self.probs * self.log_probs).sum(-1)

    def parameters(self) -> Tensor:
        return self.log_probs

    @classmethod
    def of(cls, parameters: Tensor) -> Categorical:
        return cls(parameters)

    def divergence_from(self, parameters: Tensor) -> Tensor:
        """KL(other ‖ this), [B]."""
        return (parameters.exp() * (parameters - self.log_probs)).sum(-1)
