"""Q and V of a judged policy at every step of a dataset, as a trained FQE has them: what estimates correct or lean on.

In logs of one step that is a regression of the rewards, and each episode is valued by a model that did not see it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...data.dataset import Dataset
from ...data.sampling import TransitionSampler
from ..base import Algorithm
from .decisions import Decisions
from .held_out import HeldOut, fit_while_better
from .resampling import groups

FOLDS = 2
_ROWS = 8192  # steps that are valued at once


@dataclass(frozen=True, eq=False)
class PolicyValues:
    """Values of a judged policy in a dataset of N steps and E episodes, in the units of its rewards.

    Attributes:
        q_value: Q(s, a) of the logged actions, [N].
        value: V(s) = Q(s, π(s)), [N].
        final_value: V of what each episode's last step led to, [E]; 0 where the task ended there. Where that was not recorded, what
            Q(s, a) of the last step says of it, (Q - r) / γ, so that step corrects nothing.
        first: Rows of the episodes' first steps, [E].
    """

    q_value: np.ndarray
    value: np.ndarray
    final_value: np.ndarray
    first: np.ndarray

    @property
    def initial(self) -> np.ndarray:
        return self.value[self.first]


def mean_of(several: Sequence[PolicyValues]) -> PolicyValues:
    q_value, value, final_value = (
        np.mean([getattr(one, name) for one in several], 0) for name in ("q_value", "value", "final_value")
    )
    return PolicyValues(q_value, value, final_value, several[0].first)


def policy_values(fqe: Algorithm, dataset: Dataset, policy: Decisions) -> PolicyValues:
    """Value a dataset's steps by an FQE that was trained on the judged policy; `policy` is what that would have done there.

    A scaler that shifts rewards is undone of episodes of one step alone.
    """
    steps = policy.steps
    total, last = int(steps.sum()), np.cumsum(steps) - 1
    kind: Any = {"frames": 1}
    if (chosen := fqe.config_.sampler) is not None:
        kind = {"frames": chosen.frames, "frame_padding": chosen.frame_padding}
    sampler = TransitionSampler(dataset, 1, bootstrap=False, next_action=False, dtype=fqe.fitted.dtype, **kind)
    fit = fqe.fitted

    def valued(observation: Any, action: np.ndarray) -> np.ndarray:
        found = fqe.value(fit.nets(), fit.scaling.observation(observation), fit.scaling.action(action))
        return found.double().cpu().numpy()

    q_value, value, final_value = np.empty(total), np.empty(total), np.empty(len(steps))
    with torch.no_grad():
        for at in np.split(np.arange(total), range(_ROWS, total, _ROWS)):
            batch = sampler.at(torch.from_numpy(at))
            q_value[at], value[at] = valued(batch.observation, batch.action.numpy()), valued(batch.observation, policy.taken[at])
        for at in np.split(np.arange(len(steps)), range(_ROWS, len(steps), _ROWS)):
            batch = sampler.at(torch.from_numpy(last[at]))
            led_to, reward = valued(batch.next_observation, policy.closing[at]), fit.scaling.reward(batch.reward.numpy())
            supposed = (q_value[last[at]] - reward) / (float(fqe.config_.gamma) or 1.0)
            final_value[at] = np.where(np.asarray(dataset.episodes.final_recorded, bool)[at], led_to, supposed)
    if (scaler := fqe.config_.reward_scaler) is not None:
        raw = scaler.reward_transform()
        q_value, value, final_value = ((one - raw.shift) / raw.scale for one in (q_value, value, final_value))
    final_value[np.asarray(dataset.episodes.terminated, bool)] = 0.0
    return PolicyValues(q_value, value, final_value, last - steps + 1)


def is_one_step(dataset: Dataset) -> bool:
    return bool(np.max(dataset.episodes.steps) == 1 and np.all(dataset.episodes.terminated))


def one_step_values(make: Callable[[], Algorithm], dataset: Dataset, policy: Decisions, n_steps: int) -> PolicyValues:
    """Give Q and V of a policy, from the model with the smallest error on the episodes that it values.

    `make` makes an untrained FQE of the policy, which is trained for `n_steps` at most; the dataset has two or more episodes of one
    step.
    """
    fold, n = groups(dataset.n_episodes, FOLDS), dataset.n_episodes
    q_value, value = np.zeros(n), np.zeros(n)
    for k in range(FOLDS):
        train, others = (dataset.take(np.flatnonzero(which)) for which in (fold != k, fold == k))
        there = Decisions(policy.taken[fold == k], policy.closing[fold == k], policy.steps[fold == k])
        model, held_out = make(), HeldOut(others)
        fit_while_better(model, train, lambda model=model, look=held_out: look(model, 0)["critic_loss"], n_steps)
        found = policy_values(model, others, there)
        q_value[fold == k], value[fold == k] = found.q_value, found.value
    return PolicyValues(q_value, value, np.zeros(n), np.arange(n))
