"""Errors on episodes that were held out: how runs are ranked where there is no environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...data.sampling import TransitionSampler
from .fitted import sampling

if TYPE_CHECKING:
    from ...data.batch import Batch
    from ...data.dataset import Dataset
    from ..base import Algorithm
    from .learner import Learner, Loss

_TRANSITIONS = 4096  # of the held-out episodes that are looked at, the same at every epoch
_KINDS_WITHIN = 4096  # gradient steps, from 0 and from a warm-up's end, in which each kind of update is expected to be due


class HeldOut:
    """An evaluator of transitions that are not trained on; `(algorithm, epoch) → {name: float}`.

    - `action_match`, the share of discrete actions that the policy would have taken too, or `action_error`, the mean squared
      distance of continuous ones in the data's units.
    - `td_error`, the mean of |r + γ Q(s', π(s')) - Q(s, a)| with one-step rewards, in the units of the scaled rewards, where the
      algorithm learns values.
    - Each of the algorithm's own losses by its name, on transitions drawn uniformly, the same at every call and for every seed.
      Nothing is trained, and layers are at rest.

    Args:
        dataset: The held-out part: `train, test = dataset.split(0.1, seed=0)`.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __call__(self, algorithm: Algorithm, epoch: int) -> dict[str, float]:
        """The errors and losses by name."""
        if algorithm.sequences:
            return self._looking_back(algorithm)
        fit, seen = algorithm.fit_, self.transitions(algorithm)
        observation, action, after = (
            pytree.tree_map(Tensor.numpy, x) for x in (seen.observation, seen.action, seen.next_observation)
        )
        predicted = algorithm.predict(observation)
        if predicted.dtype.kind == "i":
            found = {"action_match": float((predicted == action).mean())}
        else:
            found = {"action_error": float(((predicted.astype(np.float64) - action) ** 2).mean())}
        if algorithm.learns_values():
            value = algorithm.predict_value(observation, action)
            goal = algorithm.predict_value(after, algorithm.predict(after))
            error = fit.scale_reward(seen.reward.numpy()) + seen.discount.numpy() * goal - value
            found["td_error"] = float(np.abs(error).mean())
        return found | losses(fit.learner, fit.fixed_batch(self.dataset, _TRANSITIONS))

    def transitions(self, algorithm: Algorithm) -> Batch:
        """Transitions spread evenly over the episodes, unscaled, with as many frames as the algorithm sees and its own discount."""
        fit = algorithm.fit_
        kind, gamma = sampling(fit.config), fit.learner.values["gamma"][0]
        stacks: Any = {"frames": kind.frames, "frame_padding": kind.frame_padding, "dtype": fit.learner.dtype}
        sampler = TransitionSampler(self.dataset, 1, gamma=gamma, next_action=False, **stacks)
        return sampler.at(torch.arange(0, sampler.n_windows, -(-sampler.n_windows // _TRANSITIONS)))

    @torch.no_grad()
    def _looking_back(self, algorithm: Algorithm) -> dict[str, float]:
        """The same of the last step of stretches of episodes, each acted on with what came before and the return that followed."""
        fit = algorithm.fit_
        batch: Any = fit.fixed_batch(self.dataset, max(1, _TRANSITIONS // fit.config.context))
        done = batch.action[:, -1] if fit.action_affine is None else fit.action_affine.reverse(batch.action[:, -1])
        error = (fit.policy_module().raw(algorithm.act(fit.nets(), batch.seen)) - done).double().square().mean()
        return {"action_error": float(error), **losses(fit.learner, batch)}

    def close(self) -> None:
        """There is nothing to close."""


def losses(learner: Learner, batch: Batch) -> dict[str, float]:
    """The mean of every loss that the algorithm's schedule comes to, at the present parameters of one seed; nothing is trained."""
    reader, algorithm = _LossReader(learner), learner.algorithm
    begins = (0, getattr(algorithm.config_, algorithm.warm_up) if algorithm.warm_up else 0)
    steps = (step for begin in begins for step in range(begin, begin + _KINDS_WITHIN))
    for kind in dict.fromkeys(kind for step in steps for kind in algorithm.schedule(step)):
        getattr(algorithm, kind)(reader, batch)
    return {name: float(value) for name, value in reader.found.items()}


class _LossReader:
    """Stands in for the learner where an update is only read: its verbs train, share, track and copy nothing."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.found: dict[str, Tensor] = {}

    @torch.no_grad()
    def minimise(self, loss: Loss, network: Any, batch: Batch) -> None:
        self.found[loss.__name__] = self.learner.value(loss, batch)

    def share(self, part: Any, batch: Batch) -> Batch:
        return batch  # each loss works it out for itself

    def track(self, network: str, rate: str = "tau") -> None:
        return

    def copy(self, network: str) -> None:
        return
