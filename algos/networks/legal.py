"""Legal actions: of those that its observation's mask forbids, a network says as good as minus infinity.

A critic has a value for every discrete action, a policy a logit. Both say `NEVER` of what is illegal, so that a maximum, a
softmax, a log-sum-exp or an expectation over actions is one over legal actions, in losses and where a policy acts. `NEVER` is
finite: 0 times it is 0, and an action of probability 0 adds nothing, where infinity would make NaN. No gradient goes through it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...data.masks import Masked, mask_of

Observation = Tensor | dict[str, Tensor] | Masked

NEVER = -1e20  # no value or logit comes near it; its square is beyond float32


def legal_only(x: Tensor, observation: Observation) -> Tensor:
    """Puts `NEVER` for the actions that are illegal at observations [B, ...] into values or logits [..., B, n]."""
    mask = mask_of(observation)
    return x if mask is None else torch.where(mask, x, NEVER)


def legal_samples(x: Tensor, observation: Observation) -> Tensor:
    """Puts it into samples of the returns of every action, [..., n, N, B]."""
    mask = mask_of(observation)
    return x if mask is None else torch.where(mask.mT[:, None], x, NEVER)


def log_share(observation: Observation, like: Tensor) -> Tensor | float:
    """The logarithm of the share of actions that are legal, [B], as numbers of `like`; 0 where all are."""
    mask = mask_of(observation)
    return 0.0 if mask is None else mask.to(like.dtype).mean(-1).log()


def possible(x: Tensor) -> Tensor:
    """Where a value, a logit or a log-probability is one of a legal action: bool, as `x`."""
    return x > NEVER / 2
