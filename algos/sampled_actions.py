"""Several actions for one state: states repeated, so that one pass of a network sees all of them."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree


def repeated(observation: Any, n: int) -> Any:
    """Observations [B, ...], or a dict of them, n times one after the other: [n·B, ...]."""
    return pytree.tree_map(lambda x: x.expand(n, *x.shape).flatten(0, 1), observation)


def apart(x: Tensor, n: int) -> Tensor:
    """What was computed of n repetitions, [..., n·B], by repetition: [..., n, B]."""
    return x.unflatten(-1, (n, -1))
