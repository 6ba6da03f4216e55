"""Several actions for one state: states repeated, so that one pass of a network sees all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...data.batch import Batch
from ..nets import Nets
from ..networks.perceptrons import Repeated
from ..networks.q_functions import Values, reduced
from ..networks.q_functions.critics import Reduction, Said
from ..networks.training import lowered

_VECTORS = 2  # axes of a batch of vectors; what has more is worth encoding once for all its copies
_NEGLIGIBLE = 60.0  # e⁻⁶⁰ of the largest term changes no sum, not even in float64
_ROWS_IN_BFLOAT16 = 2_048  # where products are so fast that calls of few rows cost more than they do
_ROWS = 512  # of a seed, with activations that a CPU's cache holds; 512 to 5,120 are alike alone, and stacked seeds share it


def repeated(observation: Any, n: int) -> Any:
    """Observations [B, ...], or a dict of them, n times one after the other: [n·B, ...]; with images as `Repeated`."""
    found = Repeated(observation, n)
    images = any(part.ndim > _VECTORS for part in pytree.tree_leaves(observation))
    return found if images else found.copies()


def apart(x: Tensor, n: int) -> Tensor:
    """Sorts what was computed of n repetitions, [..., n·B], by repetition: [..., n, B]."""
    return x.unflatten(-1, (n, -1))


def log_sum_exp(x: Tensor, dim: int) -> Tensor:
    """The logarithm of Σ exp(x) over an axis; a term below e⁻⁶⁰ of the largest, which no sum shows, has no gradient either.

    In float32 that gradient would become subnormal on its way through a network, and a CPU multiplies such numbers up to 200
    times slower. The values of CQL's samples soon lie that far apart: without this, updates on a HalfCheetah expert took 2.7 times
    as long after the 1,000th as at first.
    """
    return x.clamp(min=x.detach().amax(dim, keepdim=True) - _NEGLIGIBLE).logsumexp(dim)


def values_beside(nets: Nets, policy: Any, batch: Batch, n: int, how: Reduction) -> Tensor:
    """Values the data's action, first, and `n` actions that the policy draws: [n + 1, B], in one pass of the critics."""
    drawn = policy.sample(nets.noise("action", (n, *batch.action.shape)))
    actions = torch.cat((batch.action[None], drawn)).flatten(0, 1)
    return apart(reduced(nets.critic(repeated(batch.observation, n + 1), actions), how), n + 1)


def by_parts(function: Callable[[Tensor], Said], samples: Tensor) -> Said:
    """`function` of samples [n, B, ...], which gives [..., n·B], a few of the n at a time where that is faster: on a CPU.

    There fresh memory for what a layer makes of all rows costs more than the products: BCQ's goal took twice as long in one pass.
    Not for what has a gradient, whose layers are kept anyway.
    """
    if samples.device.type != "cpu" or torch.is_grad_enabled():
        return function(samples)
    rows = _ROWS_IN_BFLOAT16 if lowered() else _ROWS
    parts = [function(part) for part in samples.split(max(1, rows // samples.shape[1]))]
    return pytree.tree_map(lambda *some: torch.cat(some, -1), *parts)


def best_of(values: Values, n: int) -> tuple[Values, Tensor]:
    """Picks the repetition with the largest expectation.

    Args:
        values: Of an ensemble that was reduced, [N, n·B].
        n: Repetitions.

    Returns:
        Its values [N, B], and which of the n it is, [B].
    """
    chosen = apart(values.mean, n).argmax(0)
    return values.map(lambda x: apart(x, n).gather(1, chosen.expand(x.shape[0], 1, -1))[:, 0]), chosen


def taken(samples: Tensor, chosen: Tensor) -> Tensor:
    """One sample for each state: [n, B, ...] by [B] to [B, ...]."""
    at = chosen.reshape(1, -1, *[1] * (samples.ndim - 2)).expand(1, -1, *samples.shape[2:])
    return samples.gather(0, at)[0]
