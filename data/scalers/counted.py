"""Numbers of kinds, which data and environments count from where their space begins, and networks from 0."""

from __future__ import annotations

import math

import torch

from ..spec import Discrete, Spec
from .base import Affine


def index_affines(spec: Spec, device: torch.device | str = "cpu") -> dict[str, Affine]:
    """Raw numbers to those that networks index by, by column, `action` among them; none where a space begins at 0 anyhow.

    An action is brought into its range: that of a closing row is 0, whatever the space.
    """
    found: dict[str, Affine] = {}
    for name, start in spec.starts().items():
        shift = -torch.from_numpy(start).to(device)
        last = spec.action.n - 1 if name == "action" and isinstance(spec.action, Discrete) else math.inf
        found[name] = Affine(torch.ones_like(shift), shift, last)
    return found
