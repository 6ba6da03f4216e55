"""Encoders' modules over vectors, and over dicts and tuples with an encoder for each key."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...data.spec import Dict, ObservationSpace
from .layers import Dropout, Linear
from .normalization import BatchNorm, LayerNorm
from .precision import autocast, lowered
from .vectors import Flat, Observation, Repeated, beside, repeat, vector_size

if TYPE_CHECKING:
    from .encoders import LayersConfig, PerceptronConfig

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
    "none": nn.Identity,
}


class EncoderModule(nn.Module):
    """What an encoder builds.

    Called as `module(observation, action=None, first=None)` it gives [B, features], or [members, B, features] for an ensemble, of
    which `first` asks for the first so many members; without an ensemble `first` changes nothing. An action [members, B, A] is one
    for each member. Where `repeats` is true, observations may come as `Repeated`; else that is copied before.
    """

    features: int
    repeats = False

    def __call__(self, observation: Any, *inputs: Any, **named: Any) -> Tensor:
        seen = observation.copies() if isinstance(observation, Repeated) and not self.repeats else observation
        inputs = (seen, *inputs)
        if (device := lowered()) is None:
            return super().__call__(*inputs, **named)
        with autocast(device):
            return super().__call__(*inputs, **named).float()


def after(width: int, config: LayersConfig, members: int | None, *, images: bool = False, last: bool = False) -> list[nn.Module]:
    """What follows an affine layer or a convolution: activation, normalisation, dropout; d3rlpy 2.8.1's order."""
    activation = config.last_activation if last and config.last_activation is not None else config.activation
    layers = [] if activation == "none" else [ACTIVATIONS[activation]()]
    if config.normalization is not None:
        layers.append((BatchNorm if config.normalization == "batch" else LayerNorm)(width, members, images=images))
    if config.dropout_rate:
        layers.append(Dropout(config.dropout_rate, images=images))
    return layers


def perceptron(size: int, config: PerceptronConfig, members: int | None) -> nn.Sequential:
    """Layers over [..., B, size]."""
    layers: list[nn.Module] = []
    for k, width in enumerate(config.hidden_units):
        layers.append(Linear(size, width, members, spectral_norm=config.spectral_norm))
        layers += after(width, config, members, last=k == len(config.hidden_units) - 1)
        size = width
    return nn.Sequential(*layers)


class DenseLayers(nn.Module):
    """Layers of which every one but the first is also given the input, beside what the layer before makes of it."""

    def __init__(self, size: int, config: PerceptronConfig, members: int | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        width = 0
        for k, wanted in enumerate(config.hidden_units):
            linear = Linear(size + width, wanted, members, spectral_norm=config.spectral_norm)
            self.blocks.append(nn.Sequential(linear, *after(wanted, config, members, last=k == len(config.hidden_units) - 1)))
            width = wanted

    def forward(self, x: Tensor) -> Tensor:
        h = self.blocks[0](x)
        if h.ndim > x.ndim:
            x = x.expand(h.shape[0], *x.shape)
        for block in list(self.blocks)[1:]:
            h = block(torch.cat((h, x), -1))
        return h


def _for_members(x: Tensor, members: int | None, first: int | None) -> Tensor:
    """[B, size] with the first so many members of an ensemble in front, if it is not for all; what has them already stays."""
    return x if first is None or members is None or x.ndim > 2 else x.expand(first, *x.shape)


class VectorNetwork(EncoderModule):
    """An observation of any space as one vector, and an action beside it, through layers."""

    def __init__(self, observation: ObservationSpace, action_size: int, members: int | None, config: PerceptronConfig) -> None:
        super().__init__()
        self.members = members
        self.flat = Flat(observation)
        self.layers = config.layers(vector_size(observation) + action_size, members)
        self.features = config.hidden_units[-1]

    def forward(self, observation: Observation, action: Tensor | None = None, first: int | None = None) -> Tensor:
        x = self.flat(observation)
        if action is not None:
            x = beside(x, action)
        return self.layers(_for_members(x, self.members, first))


class KeysNetwork(EncoderModule):
    """Features of each key that has an encoder, all other keys as one vector, and an action, side by side through layers."""

    repeats = True

    def __init__(
        self,
        observation: Dict,
        action_size: int,
        members: int | None,
        config: PerceptronConfig,
        parts: Mapping[str, EncoderModule],
    ) -> None:
        super().__init__()
        self.members = members
        self.keys = list(parts)
        self.parts = nn.ModuleList(parts.values())  # by number, for a key may be no name for a module
        rest = {key: space for key, space in observation.spaces.items() if key not in parts}
        self.rest = sorted(rest)
        self.flat = Flat(Dict(spaces=rest)) if rest else None
        size = sum(part.features for part in parts.values()) + (vector_size(Dict(spaces=rest)) if rest else 0) + action_size
        self.layers = config.layers(size, members)
        self.features = config.hidden_units[-1]

    def forward(self, observation: Observation | Repeated, action: Tensor | None = None, first: int | None = None) -> Tensor:
        n = observation.n if isinstance(observation, Repeated) else None
        seen = observation.observation if isinstance(observation, Repeated) else observation
        assert isinstance(seen, dict)
        parts = {key: seen[key] if n is None else Repeated(seen[key], n) for key in self.keys}
        found = [part(parts[key], None, first) for key, part in zip(self.keys, self.parts, strict=True)]
        plain = [] if self.flat is None else [self.flat({key: seen[key] for key in self.rest})]
        plain = plain if n is None else [repeat(x, n) for x in plain]
        if action is not None:
            plain.append(action)
        return self.layers(_for_members(functools.reduce(beside, [*found, *plain]), self.members, first))
