"""Encoders over vectors, with the networks that they build, and the network over dicts with an encoder for each key."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ...data.config import setting
from ...data.spec import Dict, ObservationSpace
from .encoding import D3RLPY, EncoderModule, LayersConfig, after
from .layers import Linear
from .vectors import Flat, Observation, Repeated, beside, repeat, vector_size

Positive = Annotated[int, Field(gt=0)]


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


class PerceptronConfig(LayersConfig):
    """Settings of what ends in a multi-layer perceptron."""

    hidden_units: tuple[Positive, ...] = setting((256, 256), "width of each layer", source=D3RLPY, min_length=1)

    def layers(self, size: int, members: int | None) -> nn.Module:
        """The perceptron, over [..., B, size]."""
        return perceptron(size, self, members)


class VectorEncoder(PerceptronConfig):
    """A multi-layer perceptron over a vector. Other observations are flattened; a number of a kind becomes zeros and a one."""

    name: Literal["vector"] = "vector"

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        return self.begun(VectorNetwork(observation, action_size, members, self))


class DenseEncoder(PerceptronConfig):
    """A perceptron each of whose layers also sees the input (D2RL: Sinha et al. 2020); d3rlpy 1's `use_dense`."""

    name: Literal["dense"] = "dense"
    hidden_units: tuple[Positive, ...] = setting(
        (256, 256, 256, 256), "width of each layer", source="Sinha et al. 2020, section 4", min_length=1
    )

    def layers(self, size: int, members: int | None) -> nn.Module:
        return DenseLayers(size, self, members)

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule:
        return self.begun(VectorNetwork(observation, action_size, members, self))
