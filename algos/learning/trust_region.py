r"""A step as far as a mean divergence allows: conjugate gradients, and a line search that never exceeds the limit.

    x ≈ H⁻¹ (-g),    g = ∇L,    H = ∇² E[KL(π_old ‖ π)] + damping · 1 at π = π_old
    step = √(2 κ / xᵀHx) x, halved until L has fallen and E[KL] ≤ κ; else nothing is changed

Products with H are gradients of gradients (Pearlmutter 1994); H itself is never made: Schulman et al. 2015, arXiv:1502.05477,
appendix C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_STILL = 1e-10  # of what is left of the equations, squared: beyond it conjugate gradients divide by rounding errors


@dataclass(frozen=True)
class Limits:
    """How a step is found.

    Attributes:
        divergence: κ, of the mean divergence.
        damping: Added to H's diagonal.
        iterations: Of conjugate gradients.
        backtracks: How often the step is halved.
    """

    divergence: float
    damping: float
    iterations: int
    backtracks: int


@dataclass(frozen=True)
class Stepped:
    """The outcome of a step, tensors ().

    Attributes:
        loss: Before the step.
        divergence: After it; 0 where none was taken.
        share: Of the full step that was taken; 0: none.
    """

    loss: Tensor
    divergence: Tensor
    share: Tensor


def trust_region_step(
    parameters: Sequence[Tensor], loss: Callable[[], Tensor], divergence: Callable[[], Tensor], limits: Limits
) -> Stepped:
    """Writes the parameters in place.

    Args:
        parameters: What is trained; they require gradients.
        loss: Its value at the parameters as they are, ().
        divergence: The mean divergence from where they are now, (), 0 before the step.
        limits: See there.
    """
    before = loss()
    gradient = _flat(torch.autograd.grad(before, parameters))
    slope = _flat(torch.autograd.grad(divergence(), parameters, create_graph=True))

    def curved(vector: Tensor) -> Tensor:
        product = torch.autograd.grad(slope @ vector, parameters, retain_graph=True)
        return _flat(product) + limits.damping * vector

    direction = conjugate_gradients(curved, -gradient, limits.iterations)
    length = direction @ curved(direction)
    if not (torch.isfinite(length) and length > 0):
        return Stepped(before.detach(), torch.zeros_like(before), torch.zeros_like(before))
    full = (2 * limits.divergence / length).sqrt() * direction
    old = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for k in range(limits.backtracks + 1):
            _move(parameters, old, 0.5**k * full)
            after, apart = loss(), divergence()
            if after < before and apart <= limits.divergence:
                return Stepped(before.detach(), apart, torch.full_like(apart, 0.5**k))
        _move(parameters, old, torch.zeros_like(full))
    return Stepped(before.detach(), torch.zeros_like(before), torch.zeros_like(before))


def conjugate_gradients(product: Callable[[Tensor], Tensor], goal: Tensor, iterations: int) -> Tensor:
    """X with A x ≈ `goal`, where `product` gives A x of a positive definite A: Hestenes and Stiefel 1952."""
    x, rest = torch.zeros_like(goal), goal.clone()
    direction, size = rest.clone(), rest @ rest
    for _ in range(iterations):
        if size < _STILL:
            break
        image = product(direction)
        step = size / (direction @ image)
        x, rest = x + step * direction, rest - step * image
        size, last = rest @ rest, size
        direction = rest + size / last * direction
    return x


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _move(parameters: Sequence[Tensor], old: Sequence[Tensor], step: Tensor) -> None:
    """Writes old + step."""
    parts = step.split([parameter.numel() for parameter in parameters])
    for parameter, where, part in zip(parameters, old, parts, strict=True):
        parameter.copy_(where + part.view_as(where))
