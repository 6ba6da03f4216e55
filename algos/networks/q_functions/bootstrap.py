"""Bootstrap masks: each member of an ensemble learns from its own half of the transitions.

Source: Osband et al. 2016, Deep Exploration via Bootstrapped DQN (arXiv:1602.04621), section 6.1 and appendix: a mask from
Bernoulli(1/2) is drawn once for each transition and member, and the loss is multiplied by it. Nothing is divided by how many
are kept: losses are means over the whole batch, as in d3rlpy 0.x, which draws its masks anew for every batch.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import AfterValidator, ValidationInfo
from torch import Tensor

from ....data.random import bits_at


def _needs_an_ensemble(bootstrap: bool, info: ValidationInfo) -> bool:
    if bootstrap and info.data.get("n_critics") == 1:
        raise ValueError("it needs n_critics of 2 or more, for it would hide half of the data from a critic alone")
    return bootstrap


Bootstrap = Annotated[bool, AfterValidator(_needs_an_ensemble)]  # of a setting that stands below `n_critics`


def bootstrap_mask(key: Tensor, index: Tensor, members: int, dtype: torch.dtype) -> Tensor:
    """0 or 1 for each member and transition, [members, B]: the same whenever the transition is drawn.

    Args:
        key: int64 (), of the seed.
        index: [B] int64: the transitions' numbers in their source; of a replay buffer, their places.
        members: Size of the ensemble.
        dtype: Of the mask.
    """
    position = index * members + torch.arange(members, device=index.device)[:, None]
    return (bits_at(key, position) & 1).to(dtype)
