"""What an experiment has come to, read from its folders: configurations, seeds, metrics by gradient step, and honest scores.

Nothing here changes anything, and MLflow is not asked: its runs are copies of what lies here. Metrics are read when they are asked
for: of a sweep of thousands of configurations a page shows the curves of a few.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from ...algos.environments.scores import Reference, reference_in
from ...data.errors import ConfigError, DataError, did_you_mean
from ...data.uris import without_secrets
from ..settings.objective import is_cost
from ..statistics import Summary, summarise
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..storage.outbox import Line, lines, newest_lines
from ..storage.resuming import flatten
from ..storage.trials import Status, Trial
from ..surroundings import read_surroundings
from .configurations import ConfigurationOutcome, by_configuration, objective_of, read_configurations

RETURN, NORMALIZED, SPEED = "evaluation/return", "evaluation/normalized_return", "time/updates_per_second"


@dataclass(frozen=True, eq=False)
class Curve:
    """A metric of one seed; values may be NaN or infinite, as the trial reported them."""

    steps: np.ndarray  # int64 [points], ascending
    values: np.ndarray  # float64 [points]

    def at(self, step: int) -> float | None:
        """The value at a step, None where there is none."""
        found = np.flatnonzero(self.steps == step)
        return float(self.values[found[0]]) if len(found) else None


@dataclass(frozen=True, eq=False)
class SeedRun:
    """What one seed of a configuration has done."""

    seed: int
    status: Status
    reason: str  # why it failed; empty otherwise
    step: int  # gradient steps that its newest checkpoint stands for
    n_steps: int
    run_id: str | None  # in MLflow
    seeds_together: int  # seeds of its trial, which trained as one stack
    last_sign: int | None  # the time of its last metrics, in milliseconds since 1970
    measured: Callable[[], Iterable[Line]]  # its metrics by step, read when they are first looked at

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """What it has measured, by name."""
        points: dict[str, list[tuple[int, float]]] = {}
        for line in self.measured():
            for name, value in line.metrics.items():
                points.setdefault(name, []).append((line.step, value))
        return {name: _curve(found) for name, found in points.items()}

    def best(self, metric: str) -> tuple[float, int] | None:
        """The best finite value of a metric and its step: the largest, of losses and errors the smallest."""
        if (curve := self.curves.get(metric)) is None or not np.isfinite(curve.values).any():
            return None
        values = np.where(np.isfinite(curve.values), -curve.values if is_cost(metric) else curve.values, -np.inf)
        at = int(values.argmax())
        return float(curve.values[at]), int(curve.steps[at])

    @property
    def speed(self) -> float | None:
        """Gradient steps a second of this seed: the median over its epochs."""
        if (curve := self.curves.get(SPEED)) is None or not (good := curve.values[np.isfinite(curve.values)]).size:
            return None
        return float(np.median(good)) / self.seeds_together


@dataclass(frozen=True)
class Score:
    """A metric of a configuration at one step, over the seeds that count, and why the others do not."""

    step: int
    is_final: bool  # whether `step` is where training ends
    values: dict[int, float]  # by seed
    left_out: dict[int, str]  # by seed
    summary: Summary | None  # None where no seed counts


@dataclass(frozen=True, eq=False)
class Configuration:
    """Seeds that differ in nothing else."""

    experiment: str
    algorithm: str
    settings: dict[str, Any]  # the trials' configuration
    n_steps: int
    seeds: tuple[SeedRun, ...]
    dataset: dict[str, Any]  # as its trials keep it
    environment: str | None  # where it was scored, or else its data recorded
    number: int | None = None  # in a sweep
    choice: dict[str, Any] = field(default_factory=dict[str, Any])  # what a sweep searched, with the values that it has
    label: str = ""  # what tells it from the others on a page
    _scores: dict[str, Score] = field(default_factory=dict[str, "Score"])

    def metrics(self) -> list[str]:
        """Names of what any seed has measured, in the order of their first appearance."""
        return list({name: None for seed in self.seeds for name in seed.curves})

    def score(self, metric: str) -> Score:
        """The metric where training ended, over the seeds that finished; while none has, at the last step that all have reached.

        Seeds that failed never count, nor do those without a finite number there.
        """
        if metric not in self._scores:
            self._scores[metric] = self._score(metric)
        return self._scores[metric]

    def _score(self, metric: str) -> Score:
        finished = [seed for seed in self.seeds if seed.status == "FINISHED"]
        compared = [s for s in finished or self.seeds if s.status != "FAILED" and metric in s.curves]
        ends = [int(seed.curves[metric].steps[-1]) for seed in compared]
        step = (max(ends) if finished else min(ends)) if ends else 0
        values, left_out = dict[int, float](), dict[int, str]()
        for seed in self.seeds:
            value = seed.curves[metric].at(step) if metric in seed.curves else None
            if seed.status == "FAILED":
                left_out[seed.seed] = f"failed: {seed.reason or 'nobody knows why'}"
            elif seed not in compared and finished and seed.status != "FINISHED":
                doing = "is still running" if seed.status == "RUNNING" else "was stopped"
                left_out[seed.seed] = f"{doing}, at step {seed.step:,} of {seed.n_steps:,}"
            elif value is None:
                left_out[seed.seed] = f"has no {metric} at step {step:,}" if metric in seed.curves else f"has no {metric}"
            elif not np.isfinite(value):
                left_out[seed.seed] = f"measured {value} at step {step:,}"
            else:
                values[seed.seed] = value
        return Score(step, step >= self.n_steps, values, left_out, summarise(list(values.values())) if values else None)


@dataclass(frozen=True, eq=False)
class Results:
    """An experiment."""

    name: str
    status: Status
    reason: str
    dataset: dict[str, Any]  # as the experiment keeps it: name, fingerprint, n_transitions, …
    environment: str | None  # where policies were scored, or else the data recorded
    episodes: int | None  # of an evaluation
    configuration: dict[str, Any]
    configurations: tuple[Configuration, ...]
    begun: float  # seconds since 1970
    ended: float  # its newest sign of life
    died: bool  # its command is gone and has not said so
    tracking: dict[str, Any]  # `uri`, `run`, `experiment_id` of MLflow; empty where nothing was delivered
    surroundings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sweep: tuple[ConfigurationOutcome, ...] = ()  # of a sweep, all of them

    @property
    def data_return(self) -> float | None:
        """Mean return of the data's own episodes; None where it was not kept."""
        return self.dataset.get("return_mean")

    @property
    def reference(self) -> Reference | None:
        """What normalised returns are relative to, where they were measured and agree with it."""
        found = reference_in(self.environment, str(self.dataset["name"]))
        for run in (run for one in self.configurations for run in one.seeds if {RETURN, NORMALIZED} <= set(run.curves)):
            value, normalized = run.curves[RETURN].values[-1], run.curves[NORMALIZED].values[-1]
            if found is not None and np.isclose(found.score(value), normalized, rtol=1e-3, atol=1e-2):
                return found
        return None


def experiment_names(storage: str) -> list[str]:
    """The experiments of a storage."""
    root = Folder(storage)
    return [name for name in root.names() if not name.startswith(".") and (root / name).read("experiment.json") is not None]


def find_experiment(storage: str, name: str) -> Experiment:
    """An experiment, to be read. Raises ConfigError where there is none of that name; the nearest is named."""
    if (Folder(storage) / name).read("experiment.json") is None:
        names = experiment_names(storage)
        near = did_you_mean(name, names) if names else "; storage=FOLDER names another place."
        raise ConfigError(f"There is no experiment {name!r} in {storage}{near}", missing=True)
    return Experiment.look(storage, name)


def kept_settings(experiment: Experiment) -> dict[str, Any]:
    """`job`, `config` and `working_directory` with which it was begun or resumed last. Raises ConfigError: they were not kept."""
    if (found := experiment.settings) is None:
        raise ConfigError(f"{experiment.name} was begun by an earlier d3ray, which kept no settings: say its command again.")
    return found


def read_results(storage: str, name: str, trial: str | None = None) -> Results:
    """What an experiment has come to so far, or one trial of it.

    Raises:
        ConfigError: there is no experiment of that name; the nearest is named.
        DataError: it has no trials yet.
        StorageError: its folder cannot be read.
    """
    return results_in(find_experiment(storage, name), trial)


def results_in(experiment: Experiment, trial: str | None = None) -> Results:
    """What an experiment in the hand has come to so far, as `read_results`."""
    status: Status = experiment.state["status"]
    if died := status == "RUNNING" and experiment.lock.is_free():
        status = "KILLED"
    trials = [one for one in experiment.trials() if trial in (None, one.identity)]
    if not trials:
        where = without_secrets(experiment.folder.above.name)
        raise DataError(f"The experiment {experiment.name!r} in {where} has no trials yet: there is nothing to report.")
    configurations: list[Configuration] = []
    for members in by_configuration(trials):
        settings, seeds = members[0].configuration, [seed for trial in members for seed in _read_trial(trial, status)]
        configurations.append(
            Configuration(
                experiment.name,
                str(settings.get("algorithm", {}).get("name", "?")),
                settings,
                int(settings.get("n_steps", 0)),
                tuple(sorted(seeds, key=lambda one: one.seed)),
                members[0].dataset,
                _id((settings.get("evaluation") or {}).get("environment")) or _id(members[0].dataset.get("environment")),
                members[0].number,
                members[0].choice_at_end,
            )
        )
    signs = [seed.last_sign for one in configurations for seed in one.seeds if seed.last_sign]
    about = experiment.folder.read_json("experiment.json")
    evaluation = next((one.settings["evaluation"] for one in configurations if one.settings.get("evaluation")), None) or {}
    return Results(
        name=experiment.name,
        status=status,
        reason=str(experiment.state.get("reason", "")),
        dataset=experiment.dataset,
        environment=_id(evaluation.get("environment")) or _id(experiment.dataset.get("environment")),
        episodes=evaluation.get("episodes"),
        configuration=experiment.configuration,
        configurations=tuple(configurations),
        begun=float(about["created"]),
        ended=max((sign / 1000 for sign in signs), default=float(about["created"])),
        died=died,
        tracking=experiment.folder.read_json("tracking.json") or {},
        surroundings=read_surroundings(experiment.folder),
        sweep=read_configurations(trials, objective_of(experiment.configuration))
        if "search" in experiment.configuration and trial is None
        else (),
    )


def _id(environment: Any) -> str | None:
    return environment.get("id") if isinstance(environment, Mapping) else environment


def _read_trial(trial: Trial, overall: Status) -> list[SeedRun]:
    ended, delivered, committed = trial.status, trial.delivered, trial.committed
    seeds: list[SeedRun] = []
    for seed in trial.seeds:
        outbox, about = trial.outbox(seed), ended.get(seed, {"status": "RUNNING" if overall == "RUNNING" else "KILLED"})
        seeds.append(
            SeedRun(
                seed=seed,
                status=about["status"],
                reason=about.get("reason", ""),
                step=int(about.get("first_bad_step", about.get("step", max(committed, 0)))),
                n_steps=int(trial.configuration.get("n_steps", 0)),
                run_id=delivered.get(seed, {}).get("run"),
                seeds_together=len(trial.seeds),
                last_sign=about.get("time") or next((line.time for line in newest_lines(outbox, committed)), None),
                measured=partial(lines, outbox, -1, committed),
            )
        )
    return seeds


def _curve(points: Iterable[tuple[int, float]]) -> Curve:
    steps, values = zip(*points, strict=True)
    return Curve(np.array(steps, np.int64), np.array(values, np.float64))


def differences(settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries, by dotted name, in which configurations differ, for each of them; `algorithm.` is left out of the names."""
    flat = [dict(flatten(one)) for one in settings]
    names = list({name: None for one in flat for name in one})
    telling = [name for name in names if len({json.dumps(one.get(name), sort_keys=True) for one in flat}) > 1]
    return [{name.removeprefix("algorithm."): one[name] for name in telling if name in one} for one in flat]
