"""The error of a policy over discrete actions that learns what the data did."""

from __future__ import annotations

import torch
from torch import Tensor

from ..networks.legal import possible
from ..networks.q_functions import picked


def imitation_error(logits: Tensor, action: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """-log π(a|s) + β / A · Σ_a' log π(a'|s)², over legal a', of logits [B, A] and actions [B], [B], and log π(a|s), [B]."""
    log_prob = logits.log_softmax(-1)
    taken = picked(log_prob, action)
    return beta * torch.where(possible(log_prob), log_prob, 0).square().mean(-1) - taken, taken
