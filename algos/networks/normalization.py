"""Normalisation over the batch, over a sample's features, and of a weight's largest singular value.

Each runs plain, as an ensemble, under `torch.func.vmap`, and on images, whose ensembles lie along the channels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, normalize

from .training import autocast, current_training, lowered


class BatchNorm(nn.Module):
    """Batch normalisation over all axes but the features': [..., B, F], or images [B, C, H, W].

    Inside a loss it normalises by the batch (biased variance), and the network that is being minimised moves its running statistics
    (unbiased variance, momentum 0.1, first pass of a loss only); at rest it normalises by those. As torch.nn.BatchNorm1d and 2d.
    """

    running_mean: Tensor
    running_var: Tensor
    trains = True

    def __init__(
        self, features: int, members: int | None = None, *, images: bool = False, momentum: float = 0.1, epsilon: float = 1e-5
    ) -> None:
        super().__init__()
        shape = _shape(features, members, images)
        self.momentum, self.epsilon, self.images = momentum, epsilon, images
        self.path = ""  # the learner writes the layer's dotted name here
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.weight.dtype)  # of an encoder in bfloat16 it comes so
        now = current_training()
        mean, var = self.running_mean, self.running_var
        if now is not None:
            axes = (0, -2, -1) if self.images else (-2,)
            mean, var = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
            name = f"{self.path}.running_mean"
            if now.statistics is not None and name not in now.statistics:
                n = x.shape[0] * x.shape[-2] * x.shape[-1] if self.images else x.shape[-2]
                seen_mean = mean.detach().reshape(self.running_mean.shape)
                seen_var = var.detach().reshape(self.running_var.shape) * (n / max(n - 1, 1))
                now.statistics[name] = self.running_mean.lerp(seen_mean, self.momentum)
                now.statistics[f"{self.path}.running_var"] = self.running_var.lerp(seen_var, self.momentum)
        weight, bias = self.weight, self.bias
        if (n := _shown(x, weight, self.images)) < weight.shape[0]:  # the first members of an ensemble
            weight, bias = weight[:n], bias[:n]
            if now is None:
                mean, var = mean[:n], var[:n]
        return (x - mean) * (var + self.epsilon).rsqrt() * weight + bias


class LayerNorm(nn.Module):
    """Layer normalisation of each sample over its features [..., B, F], or over the channels and places of images [B, C, H, W].

    As torch.nn.LayerNorm; on images as torch.nn.GroupNorm with one group, for each member of an ensemble.
    """

    def __init__(self, features: int, members: int | None = None, *, images: bool = False, epsilon: float = 1e-5) -> None:
        super().__init__()
        shape = _shape(features, members, images)
        self.features, self.epsilon, self.images = features, epsilon, images
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.weight.dtype)  # of an encoder in bfloat16 it comes so
        n = _shown(x, self.weight, self.images)
        if self.images:
            size = self.features * x.shape[-2] * x.shape[-1]
            normal = layer_norm(x.reshape(x.shape[0], -1, size), (size,), eps=self.epsilon).reshape(x.shape)
        elif self.weight.ndim == 1:
            return layer_norm(x, (self.features,), self.weight, self.bias, self.epsilon)
        else:
            normal = layer_norm(x, (self.features,), eps=self.epsilon)
        return normal * self.weight[:n] + self.bias[:n]


class SpectralNorm(nn.Module):
    """A weight over its largest singular value (Miyato et al. 2018): [..., n, m] to the same; each member has its own.

    The singular vectors are found by power iteration: fifteen rounds at first, then one for each loss that minimises the network.
    They are held fixed in the gradient, as in torch.nn.utils.parametrizations.spectral_norm.
    """

    left: Tensor
    right: Tensor
    trains = True

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.path = ""  # the learner writes the layer's dotted name here
        weight = weight.detach()
        left, right = normalize(torch.randn(weight.shape[:-1]), dim=-1), weight.new_zeros(0)
        for _ in range(15):
            left, right = _iterated(weight, left)
        self.register_buffer("left", left)
        self.register_buffer("right", right)

    def forward(self, weight: Tensor) -> Tensor:
        if (device := lowered()) is None:
            return self._divided(weight)
        with autocast(device, enabled=False):
            return self._divided(weight)

    def _divided(self, weight: Tensor) -> Tensor:
        left, right = self.left, self.right
        now = current_training()
        if now is not None and now.statistics is not None:
            names = (f"{self.path}.left", f"{self.path}.right")
            if names[0] not in now.statistics:
                now.statistics |= dict(zip(names, _iterated(weight.detach(), left), strict=True))
            left, right = (now.statistics[name] for name in names)
        return weight / (left[..., None, :] @ weight @ right[..., None])


def _iterated(weight: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """One round of power iteration."""
    right = normalize((left[..., None, :] @ weight)[..., 0, :], dim=-1)
    return normalize((weight @ right[..., None])[..., 0], dim=-1), right


def _shape(features: int, members: int | None, images: bool) -> tuple[int, ...]:
    """Of parameters and statistics, to be broadcast against the input."""
    if images:
        return (features * (members or 1), 1, 1)
    return (features,) if members is None else (members, 1, features)


def _shown(x: Tensor, weight: Tensor, images: bool) -> int:
    """How much of the weight's first axis an input meets: all of it, or the first members of an ensemble."""
    if images:
        return x.shape[-3]
    return x.shape[0] if weight.ndim == 3 else weight.shape[0]
