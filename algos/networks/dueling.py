"""A head of two streams: what a state is worth, and what each action adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from .perceptrons import Linear


class Dueling(nn.Module):
    """V(s) + A(s, a) - mean over a' of A(s, a'), in place of an affine layer: [..., B, in] to [..., B, actions · each].

    Source: Wang et al. 2016, Dueling Network Architectures for Deep Reinforcement Learning, arXiv:1511.06581, equation 9.

    Args:
        size_in: Features.
        actions: How many there are.
        each: Numbers of an action: 1, or its quantiles or logits, to each of which the equation applies.
        members: Size of an ensemble.
        hidden: Width of a layer in each stream; None: there is none.
        layer: What layers are of, such as `NoisyLinear`.
    """

    def __init__(
        self,
        size_in: int,
        actions: int,
        each: int = 1,
        members: int | None = None,
        *,
        hidden: int | None = None,
        layer: Callable[[int, int, int | None], nn.Module] = Linear,
    ) -> None:
        super().__init__()
        self.actions = actions

        def stream(size_out: int) -> nn.Module:
            if hidden is None:
                return layer(size_in, size_out, members)
            return nn.Sequential(layer(size_in, hidden, members), nn.ReLU(), layer(hidden, size_out, members))

        self.value, self.advantage = stream(each), stream(actions * each)

    def forward(self, x: Tensor) -> Tensor:
        return self._joined(self.value(x), self.advantage(x))

    def affine(self) -> tuple[Tensor, Tensor]:
        """The one weight and bias that two streams come to which are an affine layer each."""
        parts = zip(*(cast("Linear", stream).affine() for stream in (self.value, self.advantage)), strict=True)
        weight, bias = (self._joined(value, advantage) for value, advantage in parts)
        return weight, bias

    def _joined(self, value: Tensor, advantage: Tensor) -> Tensor:
        """[..., each] and [..., actions · each] to [..., actions · each]."""
        advantage = advantage.unflatten(-1, (self.actions, -1))
        return (value.unsqueeze(-2) + advantage - advantage.mean(-2, keepdim=True)).flatten(-2)
