"""Transitions of which a share of the episodes is held out: no loss learns from those, and errors are told by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.dataset import Dataset
from ...data.random import fold, root_key, uniform
from ...data.recording import Recording
from ...data.sampling.windows import Windows
from ..wants import Looks, Material, Transitions

_ROWS = 2**16  # of what is no dataset: which are held out goes by a transition's number, of which there are so many and again


@dataclass(frozen=True)
class PartlyHeldOut:
    """Transitions whose `extra["held_out"]` is 1 where they are held out, and whose `weight` there is 0.

    Weights of the others make up for it, so that a loss is as large as it was. `extra["followed"]` is 0 where the MDP ended and
    what was seen then was not recorded. The setting `holdout` is the share of the episodes, of which at least one is held out; of
    data of one episode, and of replay buffers, it is that of the transitions.
    """

    transitions: Transitions
    reads_data: ClassVar = True
    following: ClassVar = True

    def open(self, material: Material, learner: Looks) -> PartlyHeldOutSource:
        return PartlyHeldOutSource(self, material, learner)


class AroundSource:
    """Draws as the settings say, and changes each batch; what is drawn is a function of the step, so there is no state."""

    def __init__(self, ordinary: Any) -> None:
        self._ordinary = ordinary

    def _changed(self, batch: Batch) -> Batch:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Hand on what an online run and a mixture ask of a sampler."""
        return getattr(self._ordinary, name)

    def sample(self, step: int, size: int | None = None) -> Batch:
        return self._changed(self._ordinary.sample(step, size))

    def along(self, steps: Tensor) -> list[Batch] | None:
        """The batches of gradient steps [K], as a program of tensors, where the ordinary sampler gives them so."""
        batches = self._ordinary.along(steps)
        return batches and list(map(self._changed, batches))

    def between_epochs(self, epoch: int) -> None:
        self._ordinary.between_epochs(epoch)

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None: ...


class PartlyHeldOutSource(AroundSource):
    """Says what is held out; every seed holds out episodes of its own."""

    def __init__(self, wants: PartlyHeldOut, material: Material, learner: Looks) -> None:
        super().__init__(material.ordinary(wants.transitions))
        rows = [_held_out(material.given, *row) for row in zip(learner.values["holdout"], learner.seeds, strict=True)]
        held_out = torch.from_numpy(np.stack(rows) if learner.stacked else rows[0]).to(learner.device)
        self._held_out, self._stacked = held_out.to(learner.dtype), learner.stacked  # [(S,) transitions]
        self._followed = torch.from_numpy(next_recorded(material.given)).to(learner.device, learner.dtype)  # [transitions]
        self._weight = (1 - self._held_out) / (1 - self._held_out).mean(-1, keepdim=True)

    def _changed(self, batch: Batch) -> Batch:
        weight, at = batch.weight, batch.index % self._held_out.shape[-1]
        held_out, share = (part.gather(-1, at) if self._stacked else part[at] for part in (self._held_out, self._weight))
        told = {"held_out": held_out, "followed": self._followed[batch.index % len(self._followed)]}
        return replace(batch, weight=share if weight is None else weight * share, extra={**batch.extra, **told})


def _held_out(given: Any, share: float, seed: int) -> np.ndarray:
    """[transitions] bool, by their numbers in the source."""
    key = fold(root_key(seed), "held out")
    if not isinstance(given, Dataset):
        return (uniform(key, (_ROWS,)) < share).numpy()
    steps = np.asarray(Windows(given).drawable, np.int64)
    if len(steps) == 1:
        chosen = uniform(key, (int(steps[0]),)).numpy()
        return chosen <= np.sort(chosen)[max(round(share * len(chosen)), 1) - 1]
    order = uniform(key, (len(steps),)).argsort().numpy()
    held_out = np.zeros(len(steps), bool)
    held_out[order[: min(max(round(share * len(steps)), 1), len(steps) - 1)]] = True
    return np.repeat(held_out, steps)


def next_recorded(given: Any) -> np.ndarray:
    """[transitions] bool: whether the next observation was recorded, by their numbers in the source."""
    if not isinstance(given, Recording):
        return np.ones(1, bool)
    drawable, episodes = np.asarray(Windows(given).drawable, np.int64), given.episodes
    known = np.ones(int(drawable.sum()), bool)
    blind = ~np.asarray(episodes.final_recorded, bool) & (drawable == np.asarray(episodes.steps))
    known[np.cumsum(drawable)[blind] - 1] = False
    return known
