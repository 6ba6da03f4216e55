"""Quantile regression: what the three distributional Q-functions share."""

from __future__ import annotations

import torch
from torch import Tensor

from .critics import Values

_BLOCK = 2**19


def midpoints(n: int, like: Tensor) -> Tensor:
    """(i + 1/2) / n for i = 0 … n - 1, [n], of the type and on the device of `like`."""
    return (torch.arange(n, dtype=like.dtype, device=like.device) + 0.5) / n


def quantile_huber(quantiles: Tensor, fractions: Tensor, goal: Values) -> Tensor:
    r"""Σ_j w_j Σ_i |τ_i - 1{u_ij < 0}| huber(u_ij) with u_ij = goal_j - quantile_i and huber's corner κ at 1; w_j is 1 / N' mostly.

    Source: Dabney et al. 2018, Distributional RL with Quantile Regression, equations 9 and 10, summed over our quantiles and
    averaged over goals as in their Algorithm 1 and in d3rlpy 2.8.1.

    Args:
        quantiles: [members, N, B].
        fractions: τ, which broadcasts with the quantiles; no gradient reaches it.
        goal: [N', B], or [members, N', B] where each member has its own; no gradient reaches it.

    Returns:
        [members, B].
    """
    with torch.no_grad():  # the slope is known in closed form, so autograd need not keep anything of the size N N'
        fractions, n = fractions.unsqueeze(-3), 1 if goal.weights is not None else goal.atoms.shape[-2]
        steepness = value = torch.zeros_like(quantiles)
        several = at_once(quantiles.numel(), goal.atoms)
        weights = None if goal.weights is None else goal.weights.split(several, -2)
        for k, some in enumerate(goal.atoms.split(several, -2)):
            error = some.unsqueeze(-2) - quantiles.unsqueeze(-3)  # [members, some of N', N, B]
            clipped = error.clamp(-1, 1)  # huber(u) = clipped (u - clipped / 2), whose slope is clipped
            slope = torch.where(error < 0, 1 - fractions, fractions).mul_(clipped)
            if weights is not None:
                slope = slope * weights[k].unsqueeze(-2)
            steepness = steepness + slope.sum(-3)
            value = value + slope.mul_(error.sub_(clipped, alpha=0.5)).sum(-3)
    return value.sum(-2) / n - (steepness / n * (quantiles - quantiles.detach())).sum(-2)  # a zero that has the gradient


def at_once(size: int, like: Tensor) -> int:
    """How many parts of `size` numbers are worked on at once: a CPU would leave its caches, and ask for new memory each time."""
    return max(_BLOCK // size, 1) if like.device.type == "cpu" else _BLOCK
