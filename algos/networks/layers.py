"""Layers that run plain, as ensembles, and under `torch.func.vmap`."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from .normalization import SpectralNorm
from .perceptrons import Linear as Linear
from .training import current_training

Initializer = Literal["uniform", "lecun_normal", "xavier_uniform", "orthogonal"]


class Convolution(nn.Module):
    """A convolution over [B, C, H, W], with `padding` zeros around, or `members` of them side by side.

    Ensembles lie along the channels: [B, C, H, W], given to every member, to [B, members · out, H', W'], and where an input has
    n · C channels it is that of the first n. Weights and biases start uniform on ±1/√(C · size²), as torch.nn.Conv2d's do.
    """

    def __init__(
        self,
        size_in: int,
        size_out: int,
        size: int,
        stride: int,
        members: int | None = None,
        *,
        padding: int = 0,
        spectral_norm: bool = False,
    ) -> None:
        super().__init__()
        lead = () if members is None else (members,)
        bound = (size_in * size * size) ** -0.5
        self.size_in, self.stride, self.padding = size_in, stride, padding
        self.weight = nn.Parameter(torch.empty(*lead, size_out, size_in, size, size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(*lead, size_out).uniform_(-bound, bound))
        self.spectral = SpectralNorm(self.weight.flatten(-3)) if spectral_norm else None

    def forward(self, x: Tensor, first: int | None = None) -> Tensor:
        weight = self.weight if self.spectral is None else self.spectral(self.weight.flatten(-3)).reshape(self.weight.shape)
        if weight.ndim == 4:
            return conv2d(x, weight, self.bias, self.stride, self.padding)
        weight, bias = (weight, self.bias) if first is None else (weight[:first], self.bias[:first])
        return conv2d(x, weight.flatten(0, 1), bias.flatten(), self.stride, self.padding, groups=x.shape[-3] // self.size_in)


class Dropout(nn.Module):
    """Zeroes entries with probability `rate` while a loss is computed and scales the others by 1 / (1 - rate).

    Of images it zeroes whole channels.
    """

    def __init__(self, rate: float, *, images: bool = False) -> None:
        super().__init__()
        self.rate, self.images = rate, images
        self.trains = rate > 0

    def forward(self, x: Tensor) -> Tensor:
        now = current_training()
        if now is None or self.rate == 0:
            return x
        shape = (*x.shape[:-2], 1, 1) if self.images else tuple(x.shape)
        kept = now.uniform(shape) >= self.rate
        return torch.where(kept, x / (1 - self.rate), torch.zeros_like(x))


@torch.no_grad()
def initialise(module: nn.Module, how: Initializer, bias: float | None = None) -> None:
    """Draws the weights of affine layers and convolutions anew; "uniform" leaves them as they are made.

    "lecun_normal": N(0, 1/in), PFRL's; "xavier_uniform": on ±√(6 / (in + out)); "orthogonal": rows or columns orthonormal. With
    these three biases start at 0. A `bias` is the value of all.
    """
    for layer in module.modules():
        if not isinstance(layer, Linear | Convolution):
            continue
        flat = layer.weight if isinstance(layer, Linear) else layer.weight.flatten(-3).mT  # [..., in, out], the same storage
        size_in, size_out = flat.shape[-2:]
        match how:
            case "uniform":
                pass
            case "lecun_normal":
                layer.weight.normal_(0.0, size_in**-0.5)
            case "xavier_uniform":
                if isinstance(layer, Convolution):
                    size_out *= layer.weight.shape[-1] * layer.weight.shape[-2]  # torch counts every place that a channel goes to
                bound = math.sqrt(6 / (size_in + size_out))
                layer.weight.uniform_(-bound, bound)
            case "orthogonal":
                for matrix in flat[None] if flat.ndim == 2 else flat:
                    matrix.copy_(nn.init.orthogonal_(torch.empty_like(matrix)))
        if how != "uniform" or bias is not None:
            layer.bias.fill_(bias or 0.0)
        if how != "uniform" and layer.spectral is not None:
            layer.spectral = SpectralNorm(layer.weight if isinstance(layer, Linear) else layer.weight.flatten(-3))
