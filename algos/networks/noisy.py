"""Layers whose weights are drawn, so that values explore by themselves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .perceptrons import Linear
from .training import Numbers, current_draws, current_numbers


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
        given = current_numbers()
        return super().forward(x) if given is None else self._of_each_sample(x, given)

    def affine(self) -> tuple[Tensor, Tensor]:
        now = current_draws()
        if now is None:
            return self.weight, self.bias
        lead, (size_in, size_out) = self.weight.shape[:-2], self.weight.shape[-2:]
        of_inputs, of_outputs = now.once(self, lambda: (now.normal((*lead, size_in, 1)), now.normal((*lead, 1, size_out))))
        of_inputs, of_outputs = _rooted(of_inputs), _rooted(of_outputs)
        return self.weight + self.weight_sigma * (of_inputs * of_outputs), self.bias + self.bias_sigma * of_outputs.reshape(
            self.bias.shape
        )

    @property
    def n_numbers(self) -> int:
        """How many standard normal numbers a draw of the weights takes."""
        return (self.members or 1) * sum(self.weight.shape[-2:])

    def _of_each_sample(self, x: Tensor, given: Numbers) -> Tensor:
        """Each sample has weights of its own, which are never made: x (μ + σ ⊙ f(ε) f(ε')ᵀ) = x μ + ((x ⊙ f(ε)) σ) ⊙ f(ε')."""
        size_in, size_out = self.weight.shape[-2:]
        numbers = _rooted(given.take(self.n_numbers))  # [B, members · (in + out)]
        if self.members is not None:
            numbers = numbers.unflatten(-1, (self.members, -1)).movedim(-2, 0)
        of_inputs, of_outputs = numbers.split((size_in, size_out), -1)
        noise = self.applied(x * of_inputs, self.weight_sigma, self.bias_sigma)
        return super().forward(x) + noise * of_outputs


def noise_size(module: nn.Module) -> int:
    """How many numbers the noisy layers of a network take for one decision."""
    return sum(layer.n_numbers for layer in module.modules() if isinstance(layer, NoisyLinear))


def _rooted(x: Tensor) -> Tensor:
    return x.sign() * x.abs().sqrt()
