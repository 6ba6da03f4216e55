"""Several actions for one state: states repeated, so that one pass of a network sees all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..data.batch import Batch
from .nets import Nets
from .networks.q_functions import reduced
from .networks.q_functions.reductions import Reduction


def repeated(observation: Any, n: int) -> Any:
    """Observations [B, ...], or a dict of them, n times one after the other: [n·B, ...]."""
    return pytree.tree_map(lambda x: x.expand(n, *x.shape).flatten(0, 1), observation)


def apart(x: Tensor, n: int) -> Tensor:
    """What was computed of n repetitions, [..., n·B], by repetition: [..., n, B]."""
    return x.unflatten(-1, (n, -1))


def values_beside(nets: Nets, policy: Any, batch: Batch, n: int, how: Reduction) -> Tensor:
    """What the critics say of the data's action, first, and of `n` actions that the policy draws: [n + 1, B], in one pass."""
    drawn = policy.sample(nets.noise("action", (n, *batch.action.shape)))
    actions = torch.cat((batch.action[None], drawn)).flatten(0, 1)
    return apart(reduced(nets.critic(repeated(batch.observation, n + 1), actions), how), n + 1)
