"""Segments of what environments did: the latest, and older ones, each as it is told by the networks of the moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.errors import ConfigError
from ...data.random import fold, root_key, uniform
from ..environments.rollout import Rollout
from ..wants import Looks, Material
from .rollouts import Rollouts, RolloutSource, as_batch, flattened

_TRIES = 32  # rows that are drawn for one that begins a segment; with episodes of one step every other row does


@dataclass(frozen=True)
class Segments(Rollouts):
    """The latest `steps` steps of all environments together, and then as many older ones, so many times over.

    The page also has `behave`, what a policy is made of, [T, n, P], which is kept with each step as it was when it was made.

    Attributes:
        replays: Older segments that follow each new one, each a batch of its own.
        replay_start: Transitions that are there before there are any.
    """

    replays: int = 0
    replay_start: int = 0

    def rows(self, n_envs: int) -> int | None:
        """Gives the rows of a buffer; None where older segments are wanted: then as many as there is room for."""
        return None if self.replays else super().rows(n_envs)

    def open(self, material: Material, learner: Looks) -> SegmentSource:
        super().open(material, learner)  # which refuses what these cannot be either
        return SegmentSource(self, material.given, learner)


class SegmentSource(RolloutSource):
    """The segments of an online run; arguments as `RolloutSource`'s."""

    wants: Segments

    def __init__(self, wants: Segments, rollout: Rollout, learner: Looks) -> None:
        super().__init__(wants, rollout, learner)
        if wants.replays and (known := rollout.buffer.n_transitions):
            raise ConfigError(
                f"{wants.page.name} weighs each step by the policy that made it, and nobody knows that of the {known} in the "
                "replay buffer: give an empty one, or leave buffer out."
            )
        self._draws = fold(root_key(learner.seeds[0]), "segments")
        self._behaviour = np.zeros((rollout.buffer.capacity, 0), np.float32)  # of each row of the buffer, [capacity, P]
        self._at = 0  # steps of each environment when the latest segment was learned from

    def due(self) -> int:
        if self.rollout.steps % self.length:
            return 0
        return 1 + (self.wants.replays if self.rollout.buffer.n_transitions >= self.wants.replay_start else 0)

    def begins(self, step: int) -> bool:
        return self.rollout.steps != self._at

    def sample(self, step: int) -> Batch:
        """The latest segment where it was not learned from yet, else one that is drawn at (seed, gradient step)."""
        buffer, page, new = self.rollout.buffer, self.wants.page, self.begins(step)
        if new:
            slots = buffer.latest(self.length)
        else:
            slots = buffer.segments(self.length, uniform(fold(self._draws, step), (buffer.n_envs, _TRIES)).numpy())
        segment = self._read(slots, new=new)
        if new:
            behaviour = self.learner.look(page.behave, segment).cpu().numpy()
            if not self._behaviour.shape[1]:
                self._behaviour = np.zeros((buffer.capacity, behaviour.shape[-1]), behaviour.dtype)
            self._behaviour[slots] = behaviour
            self._at = self.rollout.steps
        segment["behaviour"] = torch.as_tensor(self._behaviour[slots], device=self.learner.device)
        segment |= self.learner.look(page.complete, segment)
        if new:
            self._follow(segment)
        columns = flattened(segment)
        return as_batch({**columns, "index": torch.arange(len(columns["reward"]), device=self.learner.device)})

    # ---- state

    def state(self) -> Mapping[str, Tensor]:
        """Keeps what acted at each step, which cannot be worked out again."""
        if not self._at:
            return {}
        rows = np.flatnonzero(self._behaviour.any(1))  # of rings that are not full the rest is zero
        kept = {"behaviour": torch.from_numpy(self._behaviour[rows]), "rows": torch.from_numpy(rows)}
        return {**kept, "at": torch.tensor(self._at), "paid": torch.from_numpy(self._paid)}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        kept = tensors["behaviour"].cpu().numpy()
        self._behaviour = np.zeros((self.rollout.buffer.capacity, kept.shape[1]), kept.dtype)
        self._behaviour[tensors["rows"].cpu().numpy()] = kept
        self._at, self._paid = int(tensors["at"]), tensors["paid"].cpu().numpy().copy()
