"""Which configuration of an experiment is the best, as its folders say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..settings.objective import Objective
from ..storage.experiments import Trial


@dataclass(frozen=True)
class Best:
    """The best configuration.

    Attributes:
        dataset: Name of its data.
        number: In a sweep; None elsewhere.
        metric: By which it was compared.
        value: Over its seeds; None where nothing was measured.
        seeds: Its seeds, each with its trial.
    """

    dataset: str
    number: int | None
    metric: str
    value: float | None
    seeds: tuple[tuple[Trial, int], ...]


def objective_of(settings: Mapping[str, Any]) -> Objective:
    """By what an experiment's configurations are compared: a sweep says it, elsewhere it is what chooses checkpoints."""
    return Objective.checked(settings.get("objective") or ({"metric": settings["best"]} if settings.get("best") else {}))


def best_configurations(settings: Mapping[str, Any], trials: Sequence[Trial]) -> list[Best]:
    """The best configuration of each dataset, of those that went to their end and of which a seed finished; the first of equals.

    Args:
        settings: The experiment's configuration.
        trials: Of the experiment.
    """
    objective, found = objective_of(settings), dict[str, Best]()
    for members in by_configuration(trials):
        ended = [(trial, seed, about) for trial in members for seed, about in trial.status.items()]
        statuses = {about["status"] for _, _, about in ended}
        if "FINISHED" not in statuses or "KILLED" in statuses:
            continue
        data = str(members[0].dataset["name"])
        best, value = found.get(data), objective_value(objective, {seed: about for _, seed, about in ended})
        if best is not None and (value is None or (best.value is not None and not objective.is_better(value, best.value))):
            continue
        found[data] = Best(data, members[0].number, objective.metric, value, tuple((trial, seed) for trial, seed, _ in ended))
    return list(found.values())


def by_configuration(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Trials that differ in nothing but their seeds, in the order in which configurations first appear."""
    found: dict[Any, list[Trial]] = {}
    for trial in trials:
        key = trial.number if trial.number is not None else json.dumps(trial.configuration, sort_keys=True)
        found.setdefault(key, []).append(trial)
    return list(found.values())


def objective_value(objective: Objective, ended: Mapping[int, Mapping[str, Any]]) -> float | None:
    """The objective of a configuration, of how each of its seeds ended: their last metrics, those that failed left out."""
    failed = [seed for seed, about in ended.items() if about["status"] == "FAILED"]
    return objective.of({seed: about.get("metrics", {}) for seed, about in ended.items()}, failed)


def seed_score(about: Mapping[str, Any], metric: str = "evaluation/return") -> tuple[str, float] | None:
    """The metric by which a seed's policy is compared, and its value: what chose its checkpoint, else the last of `metric`."""
    if best := about.get("best"):
        return best["metric"], best["value"]
    value = about.get("metrics", {}).get(metric)
    return None if value is None else (metric, value)
