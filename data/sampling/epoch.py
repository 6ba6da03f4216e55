"""Draws without replacement: every transition once an epoch, in an order that is computed and never stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import ConfigError
from ..random import fold
from ..recording import Recording
from .permutation import permute
from .transitions import TransitionSampler


class EpochSampler(TransitionSampler):
    """Transitions of a dataset without replacement.

    The transitions of epoch after epoch, each epoch in an order of its own, make one stream, and step k takes numbers
    k B … k B + B - 1 of it. So no transition is left out and all batches have B of them: the batch in which an epoch ends begins
    the next one. (That batch may hold a transition twice.)

    Args:
        dataset: Where from. A replay buffer, which changes while it is drawn from, has no epochs.
        batch_size: B.
        seed: One, or a sequence of S seeds; each has orders of its own.
        **options: As `TransitionSampler`'s.
    """

    def __init__(self, dataset: Recording, batch_size: int, seed: int | Sequence[int] = 0, **options: Any) -> None:
        super().__init__(dataset, batch_size, seed, **options)
        if self.grows:
            raise ConfigError("Epochs are those of a dataset: a replay buffer changes while it is drawn from.")

    def along(self, steps: Tensor) -> None:
        """Return None: how far an order's walk goes is read from values."""
        return

    def _draw(self, steps: Tensor) -> Tensor:
        n = self.n_windows
        place = steps[:, None] * self.batch_size + torch.arange(self.batch_size, device=steps.device)
        if self._key.ndim:
            place = place[:, None]
        return permute(fold(self._key[..., None], place // n), place % n, n)
