"""What actions are worth in logs of one step: a regression of the rewards, each episode valued by a model that did not see it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...data.dataset import Dataset
from ..base import Algorithm
from .decisions import Decisions
from .held_out import HeldOut
from .resampling import groups
from .values import PolicyValues, policy_values

FOLDS = 2
LOOK = 100  # gradient steps from one look at the error on the other episodes to the next
PATIENCE = 5  # looks without a smaller error after which nothing more is learned


def is_one_step(dataset: Dataset) -> bool:
    """Whether every episode has one step and ended with it, so that nothing comes after the reward."""
    return bool(np.max(dataset.episodes.steps) == 1 and np.all(dataset.episodes.terminated))


def one_step_values(make: Callable[[], Algorithm], dataset: Dataset, policy: Decisions, n_steps: int) -> PolicyValues:
    """Q and V of a policy, from the model with the smallest error on the episodes that it values.

    Args:
        make: An untrained FQE of the policy.
        dataset: Episodes of one step, two or more.
        policy: What it would have done there.
        n_steps: Gradient steps of a model, at most.
    """
    fold, n = groups(dataset.n_episodes, FOLDS), dataset.n_episodes
    q_value, value = np.zeros(n), np.zeros(n)
    for k in range(FOLDS):
        train, others = (dataset.take(np.flatnonzero(which)) for which in (fold != k, fold == k))
        there = Decisions(policy.taken[fold == k], policy.closing[fold == k], policy.steps[fold == k])
        model, held_out, least, since = make(), HeldOut(others), np.inf, 0
        for epoch in model.fitter(train, n_steps, min(LOOK, n_steps), show_progress=False):
            error, since = held_out(model, epoch.epoch)["critic_loss"], since + 1
            if error < least or epoch.epoch == 1:
                least, since, best = error, 0, policy_values(model, others, there)
                q_value[fold == k], value[fold == k] = best.q_value, best.value
            if since == PATIENCE:
                break
    return PolicyValues(q_value, value, np.zeros(n), np.arange(n))
