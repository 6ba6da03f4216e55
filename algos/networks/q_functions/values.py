"""What a critic says of the return: samples of it, with weights where they do not count alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_RAISED, _SCALED = (Tensor.add, Tensor.__add__), (Tensor.mul, Tensor.__mul__)


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """N samples of the return of each state, with weights that sum to 1.

    Samples lie on the last axis but one and states on the last: [members, N, B] of an ensemble, [N, B] once it is reduced, and
    [members, actions, N, B] where every action has its own. Arithmetic is on the samples and leaves the weights, so that a goal is
    `reward + discount * values`; what is added or multiplied is a number or has the shape without the samples, such as [B].

    Attributes:
        atoms: The samples.
        weights: What each counts, as the atoms; None: 1 / N, as quantiles do.
    """

    atoms: Tensor
    weights: Tensor | None = None

    @property
    def mean(self) -> Tensor:
        """The expectation: the shape without the samples."""
        if self.weights is not None:
            return (self.weights * self.atoms).sum(-2)
        return self.atoms.squeeze(-2) if self.atoms.shape[-2] == 1 else self.atoms.mean(-2)

    def map(self, function: Callable[[Tensor], Tensor]) -> Values:
        """What a function that moves or picks entries makes of the atoms, and of the weights."""
        return Values(function(self.atoms), None if self.weights is None else function(self.weights))

    def of(self, action: Tensor) -> Values:
        """The values of the actions taken: [..., actions, N, B] and [B] to [..., N, B]."""

        def taken(x: Tensor) -> Tensor:
            x = x.movedim(-1, -3)  # [..., B, actions, N]: whole distributions lie together
            index = action[:, None, None].expand(*x.shape[:-2], 1, x.shape[-1])
            return x.gather(-2, index).squeeze(-2).mT

        return self.map(taken)

    def mixed(self, shares: Tensor) -> Values:
        """The values of an action that is drawn: [..., actions, N, B] and probabilities [B, actions] to [..., actions · N, B]."""
        weights = torch.ones_like(self.atoms) / self.atoms.shape[-2] if self.weights is None else self.weights
        return Values(self.atoms.flatten(-3, -2), (shares.mT.unsqueeze(-2) * weights).flatten(-3, -2))

    def onto(self, support: Tensor) -> Tensor:
        """Weights on evenly spaced atoms, [M] to [..., M, B]: two share each sample between them, and ends hold what is beyond.

        C51's projection (Bellemare, Dabney, Munos 2017, equation 7). What is no number makes weights that are none, of its state.
        """
        low, high, last = support[0], support[-1], support.shape[0] - 1
        place = (self.atoms.clamp(low, high) - low) * last / (high - low)
        below = place.floor().long().clamp(0, last - 1)
        share = place - below
        shares = torch.cat((1 - share, share), -2)
        shares = shares / place.shape[-2] if self.weights is None else shares * torch.cat((self.weights, self.weights), -2)
        nothing = torch.zeros_like(place[..., :1, :].expand(*place.shape[:-2], last + 1, place.shape[-1]))
        return nothing.scatter_add(-2, torch.cat((below, below + 1), -2), shares)

    def __add__(self, other: Tensor | float) -> Values:
        return Values(self.atoms + _beside(other), self.weights)

    def __mul__(self, other: Tensor | float) -> Values:
        return Values(self.atoms * _beside(other), self.weights)

    def __sub__(self, other: Tensor | float) -> Values:
        return Values(self.atoms - _beside(other), self.weights)

    def __radd__(self, other: Tensor | float) -> Values:
        return Values(_beside(other) + self.atoms, self.weights)

    def __rmul__(self, other: Tensor | float) -> Values:
        return Values(_beside(other) * self.atoms, self.weights)

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, inputs: Sequence[Any] = (), named: Any = None
    ) -> Values:  # what a tensor asks that stands on the left, before it fails, which would take ten times as long
        tensor, values = inputs
        if function in _RAISED:
            return values.__radd__(tensor)
        return values.__rmul__(tensor) if function in _SCALED else NotImplemented


Goal = Values | Tensor  # what Q goes towards; a tensor [B] or [members, B] is a number for each, one sample of it


def as_values(goal: Goal) -> Values:
    """A goal as values."""
    return goal if isinstance(goal, Values) else Values(goal.unsqueeze(-2))


def _beside(other: Tensor | float) -> Any:
    """What has no axis of samples, as what broadcasts over them."""
    return other.unsqueeze(-2) if isinstance(other, Tensor) and other.ndim > 1 else other


def _parts(values: Values) -> tuple[list[Tensor], None]:
    return ([values.atoms] if values.weights is None else [values.atoms, values.weights]), None


def _whole(parts: Sequence[Tensor], _: None) -> Values:
    return Values(*parts)


pytree.register_pytree_node(Values, _parts, _whole)  # pyright: ignore[reportArgumentType] - its context is nothing
