"""Mixtures: every batch has some of its transitions from each of several sources."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..batch import Batch, joined
from ..errors import ConfigError, DataError
from .transitions import TransitionSampler

Weights = Sequence[float] | Callable[[int], Sequence[float]]

_STRIDE = (math.sqrt(5) - 1) / 2  # multiples of it, modulo 1, fill the interval evenly


class Mixture:
    """Batches from several samplers: of B transitions, weight k's share is from sampler k.

    How many a batch takes of each differs by at most one from weight · B, and on average over steps by nothing. It is the same for
    all seeds, so row k of a stack is still what seed k draws alone. Samplers that cannot draw anything yet, buffers that are
    filling, leave their share to the others.

    `index` of a batch is a sampler's own plus the sizes of those before it; `extra["source"]` says which one it was, [B] int64.

    Args:
        samplers: Of transitions, with one batch size and the same seeds.
        weights: One a sampler, not negative, in any unit; or a function from the gradient step to them, such as `linear`.

    Raises:
        ConfigError: weights are not one a sampler or all zero, or the samplers' batches differ in size.
    """

    def __init__(self, samplers: Sequence[TransitionSampler], weights: Weights) -> None:
        if not samplers or len({(s.batch_size, s.n_seeds) for s in samplers}) > 1:
            raise ConfigError("A mixture needs samplers of one batch size and as many seeds each.")
        if len({s.source.spec.action_mask for s in samplers}) > 1:
            raise ConfigError("A mixture needs samplers whose sources all have an action_mask, or none of them.")
        self.samplers, self.batch_size = list(samplers), samplers[0].batch_size
        self._weights = weights if callable(weights) else lambda step: weights
        self._offsets = [0, *itertools.accumulate(s.windows.size for s in samplers)]
        self._shares(0)
        self._next = 0

    @property
    def n_windows(self) -> int:
        return sum(sampler.n_windows for sampler in self.samplers)

    def counts(self, step: int) -> list[int]:
        """Return how many transitions the batch of a step has from each sampler. Raises DataError where nothing can be drawn."""
        shares = [w if s.n_windows else 0.0 for w, s in zip(self._shares(step), self.samplers, strict=True)]
        total = sum(shares)
        if not total:
            raise DataError("No source of the mixture that has a weight has anything yet that can be drawn.")
        shift, ends, reached = (step * _STRIDE) % 1.0, [0], 0.0
        for share in shares:
            reached += share
            ends.append(math.floor(reached / total * self.batch_size + shift) if reached < total else self.batch_size)
        return [b - a for a, b in itertools.pairwise(ends)]

    def sample(self, step: int | None = None) -> Batch:
        """Draw the batch of a step; None: of the step after the last call without one."""
        if step is None:
            step, self._next = self._next, self._next + 1
        parts: list[Batch] = []
        for k, (sampler, count) in enumerate(zip(self.samplers, self.counts(step), strict=True)):
            if count:
                batch = sampler.sample(step, count)
                named = replace(batch, index=batch.index + self._offsets[k])
                parts.append(named.with_extra(source=torch.full_like(batch.index, k)))
        if any(part.weight is not None for part in parts):
            parts = [_weighted(part) for part in parts]
        return joined(parts)

    @property
    def update(self) -> Callable[[Tensor, Tensor], None] | None:
        """How samplers that keep priorities are told errors of a batch, [(S,) B] each; None: there is none of them."""
        return self._tell if any(hasattr(sampler, "update") for sampler in self.samplers) else None

    def _tell(self, index: Tensor, error: Tensor) -> None:
        source = (index[..., :, None] >= torch.tensor(self._offsets[1:], device=index.device)).sum(-1)
        for k, sampler in enumerate(self.samplers):
            update: Any = getattr(sampler, "update", None)
            mine = source.reshape(-1, source.shape[-1])[0] == k  # the same in all rows
            if update is not None and bool(mine.any()):
                update(index[..., mine] - self._offsets[k], error[..., mine])

    def between_epochs(self, epoch: int) -> None:
        for sampler in self.samplers:
            sampler.between_epochs(epoch)

    def _shares(self, step: int) -> list[float]:
        shares = [float(w) for w in self._weights(step)]
        if len(shares) != len(self.samplers) or not all(w >= 0 and math.isfinite(w) for w in shares) or not sum(shares):
            raise ConfigError(f"A mixture of {len(self.samplers)} needs as many weights, not negative and not all zero: {shares}.")
        return shares


def linear(start: Sequence[float], end: Sequence[float], n_steps: int) -> Callable[[int], list[float]]:
    """Make weights that go linearly from `start` at step 0 to `end` at step `n_steps`, and stay: offline to online, say."""
    if len(start) != len(end) or n_steps < 1:
        raise ConfigError(f"A schedule needs as many weights at its end as at its start, and a step: {start}, {end}, {n_steps}.")

    def weights(step: int) -> list[float]:
        share = min(1.0, max(0.0, step / n_steps))
        return [(1 - share) * a + share * b for a, b in zip(start, end, strict=True)]

    return weights


def _weighted(batch: Batch) -> Batch:
    return batch if batch.weight is not None else replace(batch, weight=torch.ones_like(batch.reward))
