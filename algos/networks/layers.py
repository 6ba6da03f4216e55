"""Layers that run plain, as ensembles, and under `torch.func.vmap`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .training import current_training


class Linear(nn.Module):
    """An affine layer, or `members` of them side by side.

    [..., B, in] to [..., B, out]; with members [members, B, in] to [members, B, out], and [B, in] is given to every member. Where
    an input has n < members in front, it is given to the first n.
    Weights and biases start uniform on ±1/√in, as torch.nn.Linear's do.
    """

    def __init__(self, size_in: int, size_out: int, members: int | None = None) -> None:
        super().__init__()
        lead = () if members is None else (members,)
        bound = size_in**-0.5
        self.members = members
        self.weight = nn.Parameter(torch.empty(*lead, size_in, size_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(*lead, *(() if members is None else (1,)), size_out).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        if self.members is None:
            return torch.addmm(self.bias, x, self.weight) if x.ndim == 2 else x @ self.weight + self.bias
        if x.ndim == 2:
            x = x.expand(self.members, *x.shape)
        n = x.shape[0]
        if n < self.members:
            return torch.baddbmm(self.bias[:n], x, self.weight[:n])
        return torch.baddbmm(self.bias, x, self.weight)


class Dropout(nn.Module):
    """Zeroes entries with probability `rate` while a loss is computed and scales the others by 1 / (1 - rate)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        now = current_training()
        if now is None or self.rate == 0:
            return x
        kept = now.uniform(tuple(x.shape)) >= self.rate
        return torch.where(kept, x / (1 - self.rate), torch.zeros_like(x))


class BatchNorm(nn.Module):
    """Batch normalisation over the batch axis: [..., B, F].

    Inside a loss it normalises by the batch (biased variance), and the network that is being minimised moves its running statistics
    (unbiased variance, momentum 0.1, first pass of a loss only); at rest it normalises by those. As torch.nn.BatchNorm1d.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, features: int, members: int | None = None, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        shape = (features,) if members is None else (members, 1, features)
        self.momentum, self.epsilon = momentum, epsilon
        self.path = ""  # the learner writes the layer's dotted name here
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        now = current_training()
        mean, var = self.running_mean, self.running_var
        if now is not None:
            mean, var = x.mean(-2, keepdim=True), x.var(-2, correction=0, keepdim=True)
            name = f"{self.path}.running_mean"
            if now.statistics is not None and name not in now.statistics:
                n = x.shape[-2]
                seen_mean = mean.detach().reshape(self.running_mean.shape)
                seen_var = var.detach().reshape(self.running_var.shape) * (n / max(n - 1, 1))
                now.statistics[name] = self.running_mean.lerp(seen_mean, self.momentum)
                now.statistics[f"{self.path}.running_var"] = self.running_var.lerp(seen_var, self.momentum)
        weight, bias = self.weight, self.bias
        if weight.ndim == x.ndim and x.shape[0] < weight.shape[0]:  # the first members of an ensemble
            n = x.shape[0]
            mean, var, weight, bias = mean[:n], var[:n], weight[:n], bias[:n]
        return (x - mean) * (var + self.epsilon).rsqrt() * weight + bias
