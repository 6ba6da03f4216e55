"""Networks over vectors: affine layers, observations as vectors, encoders through layers, policies and value functions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...data.histories import Histories
from ...data.lazy import moved
from ...data.masks import bare
from ...data.spec import Dict, Discrete, Leaf, MultiDiscrete, ObservationSpace, space_columns
from .distributions import Categorical, ClippedGaussian, Gaussian, Point, SquashedGaussian
from .legal import Observation as Observation
from .legal import legal_only
from .normalization import SpectralNorm
from .training import autocast, lowered


class Repeated:
    """Observations [B, ...] that count n times, one after the other, beside n · B actions; made by `sampled_actions.repeated`.

    A network that can works out once what depends on a state alone, as convolutions do, and repeats that; for all others
    `EncoderModule` makes the copies.
    """

    __slots__ = ("n", "observation")

    def __init__(self, observation: Observation, n: int) -> None:
        self.observation, self.n = observation, n

    def copies(self) -> Observation:
        return pytree.tree_map(lambda x: repeat(x, self.n), self.observation)


def repeat(x: Tensor, n: int, axis: int = 0) -> Tensor:
    """Entries of an axis n times one after the other: [B, ...] to [n · B, ...]."""
    lead = x.shape[:axis]
    return x.unsqueeze(axis).expand(*lead, n, *x.shape[axis:]).flatten(axis, axis + 1)


def vector_size(space: ObservationSpace) -> int:
    return sum(_entries(leaf) for leaf in space_columns(space).values())


class Flat(nn.Module):
    """[B, ...] or a dict of such to [B, entries]; dicts in the order of their keys. It has no parameters.

    Numbers of kinds become as many zeros and a one: a discrete n n entries, a multi-discrete vector the sum of its `nvec`.
    """

    def __init__(self, space: ObservationSpace) -> None:
        super().__init__()
        self.leaves = {name.partition("/")[2]: leaf for name, leaf in space_columns(space).items()}

    def forward(self, observation: Tensor | dict[str, Tensor]) -> Tensor:
        named = observation if isinstance(observation, dict) else {"": observation}
        parts = [_vector(self.leaves.get(key), named[key]) for key in sorted(named)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def beside(x: Tensor, y: Tensor) -> Tensor:
    """Side by side along the last axis; what lacks an ensemble's axis [members, B, ...] is the same for every member."""
    if x.ndim != y.ndim:
        x, y = (x, y.expand(x.shape[0], *y.shape)) if x.ndim > y.ndim else (x.expand(y.shape[0], *x.shape), y)
    return torch.cat((x, y), -1)


def _entries(leaf: Leaf) -> int:
    match leaf:
        case Discrete():
            return leaf.n
        case MultiDiscrete():
            return sum(leaf.nvec)
        case _:
            return leaf.size


def _vector(leaf: Leaf | None, part: Tensor) -> Tensor:
    match leaf:
        case Discrete():
            return one_hot(part, leaf.n)
        case MultiDiscrete():
            return torch.cat([one_hot(part[:, k], n) for k, n in enumerate(leaf.nvec)], -1)
        case _:
            return part.reshape(part.shape[0], -1) if part.ndim != 2 else part


def one_hot(number: Tensor, n: int) -> Tensor:
    """[..., n] of whole numbers [...] of any type, in theirs; no value is read, as torch's own does."""
    return (number[..., None] == torch.arange(n, dtype=number.dtype, device=number.device)).to(number.dtype)


# ---- layers


class Linear(nn.Module):
    """An affine layer, or `members` of them side by side.

    [..., B, in] to [..., B, out]; with members [members, B, in] to [members, B, out], and [B, in] is given to every member. Where
    an input has n < members in front, it is given to the first n.
    Weights and biases start uniform on ±1/√in, as torch.nn.Linear's do.
    """

    def __init__(self, size_in: int, size_out: int, members: int | None = None, *, spectral_norm: bool = False) -> None:
        super().__init__()
        lead = () if members is None else (members,)
        bound = size_in**-0.5
        self.members = members
        self.weight = nn.Parameter(torch.empty(*lead, size_in, size_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(*lead, *(() if members is None else (1,)), size_out).uniform_(-bound, bound))
        self.spectral = SpectralNorm(self.weight) if spectral_norm else None

    def forward(self, x: Tensor) -> Tensor:
        return self.applied(x, *self.affine())

    def affine(self) -> tuple[Tensor, Tensor]:
        """The weight [(members,) in, out] and the bias, [out] or [members, 1, out], that the layer has now."""
        return self.weight if self.spectral is None else self.spectral(self.weight), self.bias

    def applied(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Applies the layer with this weight and bias."""
        if self.members is None:
            return _affine(x, weight, bias)
        if x.ndim == 2:
            x = x.expand(self.members, *x.shape)
        n = x.shape[0]
        if n < self.members:
            weight, bias = weight[:n], bias[:n]
        if n > 1 and weight.shape[-1] == 1:  # one output: on a CPU a batched product takes four times as long as a sum
            return (x * weight.transpose(-2, -1)).sum(-1, keepdim=True) + bias  # .mT has no operator in ONNX
        return _affine(x, weight, bias)


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Gives x W + b. A CPU adds b in place: as fast as within the product, and faster under `vmap`, which takes those apart.

    Of an encoder in bfloat16 it adds b in that, like all of a product; else the whole product would be converted there and back.
    """
    if not x.is_cuda or x.ndim != weight.ndim:
        product = x @ weight
        return product.add_(bias if bias.dtype == product.dtype else bias.to(product.dtype))
    return torch.addmm(bias, x, weight) if x.ndim == 2 else torch.baddbmm(bias, x, weight)


# ---- encoders


class EncoderModule(nn.Module):
    """Base of the modules that encoders build.

    Called as `module(observation, action=None, first=None)` it gives [B, features], or [members, B, features] for an ensemble, of
    which `first` asks for the first so many members; without an ensemble `first` changes nothing. An action [members, B, A] is one
    for each member. Where `repeats` is true, observations may come as `Repeated`; else that is copied before. Masks of
    legal actions are no input: they are taken off before. `Histories` are read as such by recurrent ones alone; others see each
    step by itself.
    """

    features: int
    repeats = False
    remembers = False

    def __call__(self, observation: Any, *inputs: Any, **named: Any) -> Tensor:
        if not isinstance(observation, Tensor):
            observation = self._readable(observation)
        if (device := lowered()) is None:
            return super().__call__(observation, *inputs, **named)
        with autocast(device):
            return super().__call__(observation, *inputs, **named).float()

    def _readable(self, observation: Any) -> Any:
        seen = observation.copies() if isinstance(observation, Repeated) and not self.repeats else bare(observation)
        return seen.steps() if isinstance(seen, Histories) and not self.remembers else seen


class Layered(Protocol):
    """Settings of layers, as networks read them; see `encoding.PerceptronConfig`."""

    @property
    def hidden_units(self) -> tuple[int, ...]: ...

    def layers(self, size: int, members: int | None) -> nn.Module: ...


class Encoder(Protocol):
    """Settings that build an encoder, see `encoding.EncoderConfig`."""

    def build(self, observation: ObservationSpace, action_size: int = 0, members: int | None = None) -> EncoderModule: ...


def for_members(x: Tensor, members: int | None, first: int | None) -> Tensor:
    """[B, size] with the first so many members of an ensemble in front, if it is not for all; what has them already stays."""
    return x if first is None or members is None or x.ndim > 2 else x.expand(first, *x.shape)


class VectorNetwork(EncoderModule):
    """An observation of any space as one vector, and an action beside it, through layers."""

    def __init__(self, observation: ObservationSpace, action_size: int, members: int | None, config: Layered) -> None:
        super().__init__()
        self.members = members
        self.flat = Flat(observation)
        self.layers = config.layers(vector_size(observation) + action_size, members)
        self.features = config.hidden_units[-1]

    def forward(self, observation: Observation, action: Tensor | None = None, first: int | None = None) -> Tensor:
        x = self.flat(observation)
        if action is not None:
            x = beside(x, action)
        return self.layers(for_members(x, self.members, first))


class KeysNetwork(EncoderModule):
    """Features of each key that has an encoder, all other keys as one vector, and an action, side by side through layers."""

    repeats = True

    def __init__(
        self,
        observation: Dict,
        action_size: int,
        members: int | None,
        config: Layered,
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
        return self.layers(for_members(functools.reduce(beside, [*found, *plain]), self.members, first))


# ---- policies and value functions


class DeterministicPolicy(nn.Module):
    """π(s) in (-1, 1): [B, ...] to [B, A]."""

    def __init__(self, encoder: Encoder, observation: ObservationSpace, action_size: int) -> None:
        super().__init__()
        self.encoder = encoder.build(observation)
        self.head = Linear(self.encoder.features, action_size)

    def forward(self, observation: Observation) -> Tensor:
        return self.raw(observation).tanh()

    def raw(self, observation: Observation) -> Tensor:
        return self.head(self.encoder(observation))


class PointPolicy(DeterministicPolicy):
    """A `DeterministicPolicy` as a distribution, for losses that ask for log densities: [B, ...] to a `Point`."""

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
    """A `CategoricalPolicy` as a distribution: [B, ...] to a `Categorical`."""

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


__getattr__ = moved(__name__, "d3ray.algos.networks.encoding")  # which has the settings that stood here
