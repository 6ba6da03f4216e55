"""What a sweep has come to, read from its folder: each configuration with its objective, and the best of each dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..settings.objective import Objective
from ..statistics import Summary, summarise
from ..storage.experiments import Experiment
from .best import by_configuration, objective_value
from .experiment import ExperimentResult

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
class ConfigurationResult:
    """A configuration of a sweep."""

    number: int
    choice: dict[str, Any]  # what was searched, with the values that it has
    dataset: str
    outcome: Outcome | None  # None: some seed has not ended
    values: dict[int, float]  # the objective's metric where each seed ended; those that failed are left out
    failed: dict[int, str]  # seeds that failed, and why
    folders: tuple[str, ...]  # of its trials

    @property
    def summary(self) -> Summary | None:
        """Mean over the seeds and its 95 % bootstrap interval; None where there is no value."""
        return summarise(list(self.values.values())) if self.values else None


@dataclass(frozen=True)
class SweepResult:
    """What came of a sweep, and where it lies."""

    experiment: ExperimentResult
    objective: Objective
    configurations: tuple[ConfigurationResult, ...]

    @property
    def best(self) -> dict[str, ConfigurationResult]:
        """The best configuration of each dataset, of those that went to their end; the first of equals."""
        found: dict[str, ConfigurationResult] = {}
        for one in self.configurations:
            if one.outcome is None or one.outcome.ended != "finished" or (value := one.outcome.objective) is None:
                continue
            before = found[one.dataset].outcome if one.dataset in found else None
            if before is None or before.objective is None or self.objective.is_better(value, before.objective):
                found[one.dataset] = one
        return found


def read_sweep(experiment: Experiment, objective: Objective) -> tuple[ConfigurationResult, ...]:
    """The configurations of a sweep so far, in order of number. Raises StorageError."""
    found: list[ConfigurationResult] = []
    for trials in by_configuration(experiment.trials()):
        number, choice = trials[0].number, trials[0].choice
        if number is None or choice is None:  # no sweep's
            continue
        statuses = [trial.status for trial in trials]
        ended = {seed: about for status in statuses for seed, about in status.items()}
        failed = {seed: str(about.get("reason", "")) for seed, about in ended.items() if about["status"] == "FAILED"}
        values = {
            seed: float(about["metrics"][objective.metric])
            for seed, about in ended.items()
            if seed not in failed and objective.metric in about.get("metrics", {})
        }
        found.append(
            ConfigurationResult(
                number=number,
                choice=choice,
                dataset=str(choice.get("dataset", trials[0].dataset["name"])),
                outcome=outcome(objective, ended) if all(statuses) else None,
                values=values,
                failed=failed,
                folders=tuple(trial.folder.name for trial in trials),
            )
        )
    return tuple(sorted(found, key=lambda one: one.number))
