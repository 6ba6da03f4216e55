"""Observations of any space as one vector each, which is what perceptrons take."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...data.masks import Masked
from ...data.spec import Discrete, Leaf, MultiDiscrete, ObservationSpace, space_columns

Observation = Tensor | dict[str, Tensor] | Masked


class Repeated:
    """Observations [B, ...] that count n times, one after the other, beside n · B actions; made by `sampled_actions.repeated`.

    A network that can works out once what depends on a state alone, as convolutions do, and repeats that; for all others
    `EncoderModule` makes the copies.
    """

    __slots__ = ("n", "observation")

    def __init__(self, observation: Observation, n: int) -> None:
        self.observation, self.n = observation, n

    def copies(self) -> Observation:
        """[n · B, ...]."""
        return pytree.tree_map(lambda x: repeat(x, self.n), self.observation)


def repeat(x: Tensor, n: int, axis: int = 0) -> Tensor:
    """Entries of an axis n times one after the other: [B, ...] to [n · B, ...]."""
    lead = x.shape[:axis]
    return x.unsqueeze(axis).expand(*lead, n, *x.shape[axis:]).flatten(axis, axis + 1)


def vector_size(space: ObservationSpace) -> int:
    """Entries of the vector that `Flat` makes."""
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
