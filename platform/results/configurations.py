"""What became of configurations, whose trials differ in nothing but their seeds, and which of them is the best, as folders say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..settings.objective import Objective
from ..statistics import Summary, summarise
from ..storage.trials import Trial

OF_MODELS = "train/held_out_error"  # by which models of the dynamics are compared where nothing else was measured

Ended = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of a configuration whose seeds have ended."""

    ended: Ended
    objective: float | None  # None where no seed measured it
    step: int  # gradient steps that its furthest seed has done


def outcome(objective: Objective, ended: Mapping[int, Mapping[str, Any]]) -> Outcome:
    """What became of a configuration, of how each of its seeds ended. It failed where all seeds did."""
    statuses = {about["status"] for about in ended.values()}
    how: Ended = "failed" if statuses == {"FAILED"} else "stopped" if "KILLED" in statuses else "finished"
    return Outcome(how, objective_value(objective, ended), max((int(about.get("step", 0)) for about in ended.values()), default=0))


@dataclass(frozen=True)
class ConfigurationOutcome:
    """A configuration."""

    number: int | None  # in a sweep or a benchmark
    choice: dict[str, Any]  # what was searched, with the values that it has, under PBT those that it has come to
    dataset: str  # as it was chosen, else its name
    ended: Ended | None  # None: some trial has not ended
    value: float | None  # the objective; None: not ended, or no seed measured it
    step: int  # gradient steps that its furthest seed has done
    scores: dict[int, float]  # the objective's metric where each seed ended; those that failed are left out
    failed: dict[int, str]  # seeds that failed, and why
    folders: tuple[str, ...]  # of its trials

    @property
    def summary(self) -> Summary | None:
        """Mean over the seeds and its 95 % bootstrap interval; None where there is no value."""
        return summarise(list(self.scores.values())) if self.scores else None


def objective_of(settings: Mapping[str, Any]) -> Objective:
    """By what an experiment's configurations are compared: a sweep says it, elsewhere it is what chooses checkpoints."""
    return Objective.checked(settings.get("objective") or ({"metric": settings["best"]} if settings.get("best") else {}))


def by_configuration(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Trials that differ in nothing but their seeds, in the order in which configurations first appear."""
    found: dict[Any, list[Trial]] = {}
    for trial in trials:
        key = trial.number if trial.number is not None else json.dumps(trial.configuration, sort_keys=True)
        found.setdefault(key, []).append(trial)
    return list(found.values())


def read_configurations(trials: Iterable[Trial], objective: Objective) -> tuple[ConfigurationOutcome, ...]:
    """The configurations of trials so far, in order of number. Raises StorageError."""
    found: list[ConfigurationOutcome] = []
    for members in by_configuration(trials):
        statuses, choice = [trial.status for trial in members], members[0].choice_at_end
        ended = {seed: about for status in statuses for seed, about in status.items()}
        failed = {seed: str(about.get("reason", "")) for seed, about in ended.items() if about["status"] == "FAILED"}
        measured = {seed: about["metrics"] for seed, about in ended.items() if objective.metric in about.get("metrics", {})}
        came = outcome(objective, ended) if all(statuses) else None
        found.append(
            ConfigurationOutcome(
                number=members[0].number,
                choice=choice,
                dataset=str(choice.get("dataset", members[0].dataset["name"])),
                ended=came and came.ended,
                value=came and came.objective,
                step=came.step if came else 0,
                scores={seed: float(found[objective.metric]) for seed, found in measured.items() if seed not in failed},
                failed=failed,
                folders=tuple(trial.folder.name for trial in members),
            )
        )
    return tuple(sorted(found, key=lambda one: one.number or 0))


def best_by(
    kind: Callable[[ConfigurationOutcome], str], configurations: Iterable[ConfigurationOutcome], objective: Objective
) -> dict[str, ConfigurationOutcome]:
    """The best configuration of each kind, as of a dataset, of those that went to their end; the first of equals."""
    found: dict[str, ConfigurationOutcome] = {}
    for one in configurations:
        if one.ended != "finished":
            continue
        value, before = one.value, found.get(kind(one))
        best = None if before is None else before.value
        if before is None or (value is not None and (best is None or objective.is_better(value, best))):
            found[kind(one)] = one
    return found


def objective_value(objective: Objective, ended: Mapping[int, Mapping[str, Any]]) -> float | None:
    """The objective of a configuration, of how each of its seeds ended: their last metrics, those that failed left out."""
    failed = [seed for seed, about in ended.items() if about["status"] == "FAILED"]
    return objective.of({seed: about.get("metrics", {}) for seed, about in ended.items()}, failed)


def seed_score(about: Mapping[str, Any], metric: str = "evaluation/return") -> tuple[str, float] | None:
    """The metric by which a seed is compared, and its value: what chose its checkpoint, else the last of `metric`.

    A model of the dynamics that nothing else was measured of has its error on what it held out.
    """
    if best := about.get("best"):
        return best["metric"], best["value"]
    metrics = about.get("metrics", {})
    return next(((name, metrics[name]) for name in (metric, OF_MODELS) if name in metrics), None)
