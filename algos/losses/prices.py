"""Learnt prices of constraints: each rises while its constraint is broken, and falls while it is kept."""

from __future__ import annotations

import torch
from torch import Tensor

from ..networks.training import whole_batch


def price_loss(price: Tensor, excess: Tensor, least: float, most: float) -> Tensor:
    """-price · excess of each sample, as `excess`; 0 for all where a step would lead the price further beyond a bound.

    A clamp would hold the price there too, but has no gradient beyond its bound, so that it could not come back.

    Args:
        price: (), with its gradient.
        excess: By how much the constraint is broken, [..., B], without one. Its mean says where a step leads.
        least: Bound of the price from below.
        most: Bound from above.
    """
    level = price.detach()
    leaves = torch.where(whole_batch(excess.detach()).mean() > 0, level >= most, level <= least)
    return torch.where(leaves, torch.zeros_like(excess), -price * excess)
