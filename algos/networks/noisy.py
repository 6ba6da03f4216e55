"""Layers whose weights are drawn, so that values explore by themselves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .layers import Linear
from .training import current_draws


class NoisyLinear(Linear):
    """An affine layer with weights μ + σ ⊙ ε, where σ is learnt, or `members` of them side by side.

        ε_ij = f(ε_i) f(ε_j),    of the bias f(ε_j),    f(x) = sgn(x) √|x|,    i numbers inputs, j outputs

    A pass has one draw for all samples, of each member its own, and live and target networks draw apart. At rest the layer has its
    means. They start as those of `Linear`, and every σ at `sigma` / √in.

    Source: Fortunato et al. 2018, Noisy Networks for Exploration, arXiv:1706.10295, section 3, factorised noise.
    """

    draws = True

    def __init__(self, size_in: int, size_out: int, members: int | None = None, *, sigma: float = 0.5) -> None:
        super().__init__(size_in, size_out, members)
        self.weight_sigma = nn.Parameter(torch.full_like(self.weight, sigma * size_in**-0.5))
        self.bias_sigma = nn.Parameter(torch.full_like(self.bias, sigma * size_in**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        now = current_draws()
        if now is None:
            return super().forward(x)
        lead, (size_in, size_out) = self.weight.shape[:-2], self.weight.shape[-2:]
        of_inputs, of_outputs = _rooted(now.normal((*lead, size_in, 1))), _rooted(now.normal((*lead, 1, size_out)))
        weight = self.weight + self.weight_sigma * (of_inputs * of_outputs)
        return self.applied(x, weight, self.bias + self.bias_sigma * of_outputs.reshape(self.bias.shape))


def _rooted(x: Tensor) -> Tensor:
    """sgn(x) √|x|."""
    return x.sign() * x.abs().sqrt()
