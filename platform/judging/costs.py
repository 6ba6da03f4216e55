"""What policies cost by the logs: estimated as returns are, from logs whose rewards are their costs, and held against a limit.

A limit L is of an episode's undiscounted cost; estimates are discounted. An episode of T steps that costs L, evenly, costs

    L/T · mean over the logged episodes of Σ_{k<T_e} γᵏ,    T the mean of their lengths T_e,

and where an estimator counts what a policy does beyond the end of episodes that were cut, as those by FQE do, such an episode goes
on for ever: 1 / (1 - γ) in place of its sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...algos.judging.estimates import ESTIMATORS
from ...algos.judging.logs import Logs
from ...algos.judging.values import PolicyValues
from ...data.dataset import Dataset
from ...data.errors import DataError
from ...data.storage.costs import COST
from ..storage.folders import Folder
from .settings import JudgeSettings
from .unseen import KEPT
from .verdicts import Critics

_SLIGHT = 0.05  # share of what the logs cost by which a mean value may lie below 0


def check_costs(settings: JudgeSettings, dataset: Dataset) -> None:
    """Raises DataError where costs are to be estimated from logs without."""
    if settings.cost_limit is not None and COST not in dataset.kinds:
        raise DataError(f"{dataset.name!r} has no column 'cost', so nothing can be held against cost_limit.")


def of_costs(settings: JudgeSettings) -> JudgeSettings:
    """The settings of the estimates of costs: an experiment of its own, in which nothing is played or followed in a model."""
    asked = tuple(name for name in settings.estimators or () if name != "MB") or None
    without = {"cost_limit": None, "environment": None, "model": None, "bounds": None, "estimators": asked}
    return settings.model_copy(update={"name": f"{settings.experiment_name}-costs", **without})


def costs_as_rewards(settings: JudgeSettings, dataset: Dataset) -> tuple[Dataset, str]:
    """The logs with their costs in the place of rewards, written where trials read them, and that place."""
    costed = dataset.relabel(COST)
    folder = Folder(settings.storage_place) / KEPT / costed.fingerprint[:16]
    if folder.read("dataset.json") is None:
        costed.write(folder.name)
    return costed, folder.name


def not_below_0(critics: Sequence[Critics | None], dataset: Dataset, gamma: float) -> list[Critics | None]:
    """Raise FQE's values of costs to 0, below which they are errors where no cost is, so that it shows who costs nothing.

    Those of a seed stay as they are, and are refused, where they lie further below 0 in the mean over first steps than a twentieth
    of what the logs cost: there the critic is wrong.
    """
    costs = Logs.of(dataset, None, gamma=gamma)
    if (costs.reward < 0).any():
        return list(critics)
    least = -_SLIGHT * float(costs.returns.mean())

    def raised(one: PolicyValues) -> PolicyValues:
        if float(one.value[one.first].mean()) < least:
            return one
        parts = {name: np.maximum(getattr(one, name), 0) for name in ("q_value", "value", "final_value")}
        return replace(one, **parts)

    return [None if one is None else replace(one, values=[raised(values) for values in one.values]) for one in critics]


def discounted_limit(dataset: Dataset, limit: float, gamma: float, estimator: str) -> float:
    """What an estimate may come to, so that an episode costs at most the limit."""
    steps = np.asarray(dataset.episodes.steps, np.float64)
    if gamma == 1:
        return limit
    weights = (1 - gamma**steps) / (1 - gamma)
    if ESTIMATORS[estimator].values:
        weights[~np.asarray(dataset.episodes.terminated, bool)] = 1 / (1 - gamma)
    return limit / float(steps.mean()) * float(weights.mean())
