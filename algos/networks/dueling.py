"""A head of two streams: what a state is worth, and what each action adds."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .layers import Linear


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
        advantage = self.advantage(x).unflatten(-1, (self.actions, -1))  # [..., B, actions, each]
        return (self.value(x).unsqueeze(-2) + advantage - advantage.mean(-2, keepdim=True)).flatten(-2)
