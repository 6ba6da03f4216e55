"""Reads how an experiment stands from its storage alone: no lock is kept, nothing is written, no Ray and no MLflow is asked."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, Self

from ...data.errors import StorageError
from ..record.jobs import Job
from ..record.results import SPEED
from ..record.status import Budget, SeedStatus, State, Status, TrialStatus, main_losses, rate_of
from ..settings.objective import Objective
from ..storage.experiments import Experiment
from ..storage.outbox import newest_lines
from ..storage.trials import Trial
from .configurations import differences, objective_of
from .progress import Progress, TrialProgress
from .reading import find_experiment

_POINTS = 6  # lines that a rate is measured from


class StatusReader:
    """Reads an experiment as often as is asked; trials that are done with are read once. Raises ConfigError, StorageError."""

    def __init__(self, storage: str, name: str) -> None:
        self._begin(find_experiment(storage, name))

    @classmethod
    def of(cls, experiment: Experiment) -> Self:
        made = cls.__new__(cls)
        made._begin(experiment)
        return made

    def _begin(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self._created = float(self.experiment.folder.read_json("experiment.json")["created"])
        self._about: dict[str, Trial] = {}  # by identity
        self._labels: dict[str, tuple[str, dict[str, str]]] = {}  # by identity: a name of its configuration, and what was chosen
        self._settled: dict[str, TrialStatus] = {}
        self._since = 0.0

    def read(self, progress: Progress | None = None, job: Job | None = None) -> Status:
        """The experiment now, with the newest job that ran it where one is known.

        `progress` is the driver's, where this process runs the experiment: it knows of epochs that no checkpoint stands for yet.
        Raises StorageError: the experiment's own files cannot be read; trials that cannot are left out, and `trouble` says so.
        """
        experiment, now = self.experiment, time.time()
        kept = experiment.folder.read_json("state.json")
        state, reason = self._state(kept)
        since = float((kept or {}).get("since", self._created))
        if since != self._since:  # another command has begun or ended it since: what was settled may have been taken up again
            self._settled, self._since = {}, since
        trouble: list[str] = []
        self._learn(trouble)
        objective = _objective(experiment, self._about.values())
        metric = None if objective is None else objective.metric

        def status(identity: str) -> TrialStatus | None:
            try:
                return self._trial(identity, state, metric)
            except StorageError as error:
                trouble.append(str(error))
                return None

        left = [identity for identity in self._about if identity not in self._settled]
        read = {one.identity: one for one in self.experiment.folder.each(status, left) if one is not None}
        self._settled.update({identity: one for identity, one in read.items() if one.ended and one.is_final})
        known = {**self._settled, **read}
        trials = [known[identity] for identity in self._about if identity in known]
        if progress is not None:
            trials = [_fresher(one, progress.trials.get(one.identity), metric) for one in trials]
        search = experiment.configuration
        budget = {key: value for key, value in (search.get("budget") or {}).items() if value is not None}
        scheduler = (search.get("scheduler") or {}).get("name", "none")
        return Status(
            name=experiment.name,
            folder=experiment.folder.name,
            state=state,
            reason=reason,
            created=self._created,
            since=since,
            now=now,
            objective=objective,
            trials=tuple(trials),
            budget=Budget(limits=budget, spent=self._spent() if {"hours", "gpu_hours"} & set(budget) else {}),
            may_stop="" if scheduler in ("none", "pbt") else scheduler,
            trouble=tuple(trouble),
            job=job,
        )

    def _state(self, kept: Mapping[str, Any] | None) -> tuple[State, str]:
        if kept is None:
            free = self.experiment.lock.is_free()
            return ("KILLED", "its command died before training began") if free else ("PENDING", "its command is starting")
        status: State = kept["status"]
        if status == "RUNNING" and self.experiment.lock.is_free():
            return "KILLED", "its command died"
        return status, str(kept.get("reason", ""))

    def _spent(self) -> dict[str, float]:
        kept = self.experiment.folder.read_json("spent.json") or {}
        return {"hours": kept.get("seconds", 0.0) / 3600, "gpu_hours": kept.get("gpu_seconds", 0.0) / 3600}

    # ---- trials

    def _learn(self, trouble: list[str]) -> None:
        """Reads what trials there are that were not there before."""
        folder = self.experiment.folder / "trials"
        names = [name for name in folder.names() if not name.startswith(".")]
        if gone := set(self._about) - set(names):  # --replace
            self._about = {name: trial for name, trial in self._about.items() if name not in gone}

        def learn(name: str) -> Trial | None:
            try:
                return Trial(folder / name)
            except StorageError as error:
                if (folder / name).read("trial.json") is not None:  # else it is being made
                    trouble.append(str(error))
                return None

        new = [
            trial
            for trial in self.experiment.folder.each(learn, [name for name in names if name not in self._about])
            if trial is not None
        ]
        if new or gone:
            self._about.update({trial.identity: trial for trial in new})
            in_order = sorted(self._about.values(), key=lambda trial: (trial.number or 0, trial.title, trial.seeds))
            self._about = {trial.identity: trial for trial in in_order}
            self._label(new)

    def _label(self, new: Iterable[Trial]) -> None:
        """Label trials by number and chosen settings, or by the settings in which they differ."""
        new = list(new)
        if all(trial.number is not None for trial in new):
            chosen = self.experiment.folder.each(lambda trial: trial.choice_at_end, new)
            self._labels |= {t.identity: (str(t.number), _chosen(choice)) for t, choice in zip(new, chosen, strict=True)}
            return
        keys = {i: json.dumps([t.dataset.get("fingerprint"), t.configuration], sort_keys=True) for i, t in self._about.items()}
        settings = {keys[identity]: trial.configuration for identity, trial in self._about.items()}
        chosen = map(_chosen, differences(list(settings.values())) if len(settings) > 1 else [{}])
        told = {key: (str(n), choice) for n, (key, choice) in enumerate(zip(settings, chosen, strict=True))}
        self._labels = {identity: told[key] for identity, key in keys.items()}

    def _trial(self, identity: str, overall: State, metric: str | None) -> TrialStatus:
        trial = self._about[identity]
        configuration, chosen = self._labels[identity]
        kind = f"{trial.configuration.get('algorithm', {}).get('name')} on {trial.dataset.get('fingerprint')}"
        about: dict[str, Any] = {
            **{"identity": identity, "number": trial.number, "configuration": configuration, "chosen": chosen, "kind": kind},
            **{"n_steps": trial.n_steps, "data": str(trial.dataset.get("fingerprint"))},
            **{"source": str(trial.dataset.get("source") or ""), "title": trial.title},
        }
        ended = trial.status
        if len(ended) == len(trial.seeds):
            return TrialStatus(**about, **_ended(trial, ended, metric))
        attempts = int(trial.folder.read("attempt") or 0)
        if not attempts:
            return TrialStatus(**about, state="PENDING", step=0, seeds=tuple(SeedStatus(seed=seed) for seed in trial.seeds))
        begun = trial.folder.written("attempt")
        committed = max(trial.committed, 0)
        seeds, points, speed = _going(trial, committed, metric)
        at = max([when for when in (begun, points[-1][0] if points else None) if when is not None], default=None)
        state: State = "KILLED"
        if overall == "RUNNING":  # a trial that an earlier command began waits until this one begins it too
            state = "RUNNING" if begun is None or begun >= self._since - 1 or (at or 0) > self._since else "PENDING"
        elif overall == "PENDING":
            state = "PENDING"
        rate = _rate(points, len(trial.seeds), speed)
        return TrialStatus(**about, state=state, step=committed, seeds=seeds, rate=rate, at=at, attempts=attempts)


def _ended(trial: Trial, ended: Mapping[int, Mapping[str, Any]], metric: str | None) -> dict[str, Any]:
    bad = {seed: about for seed, about in ended.items() if about["status"] != "FINISHED"}
    failed = {seed: str(about.get("reason") or "nobody knows why") for seed, about in bad.items() if about["status"] == "FAILED"}
    first = next(iter(bad.values()), None)
    times = [about["time"] / 1000 for about in ended.values() if "time" in about]
    speeds = [about["metrics"][SPEED] for about in ended.values() if SPEED in about.get("metrics", {})]
    return {
        "state": "FINISHED" if first is None else "FAILED" if failed else first["status"],
        "is_final": all(about["status"] == "FINISHED" or about.get("final") for about in ended.values()),
        "reason": next((str(about["reason"]) for about in (first, *ended.values()) if about and about.get("reason")), ""),
        "step": max((int(about.get("step", 0)) for about in ended.values()), default=0),
        "seeds": tuple(
            SeedStatus(seed=seed, reason=failed[seed]) if seed in failed else _seed(seed, about.get("metrics", {}), metric)
            for seed, about in ended.items()
        ),
        "rate": speeds[0] if speeds else None,
        "at": max(times) if times else trial.folder.written("status.json"),
    }


def _going(
    trial: Trial, committed: int, metric: str | None
) -> tuple[tuple[SeedStatus, ...], list[tuple[float, int]], float | None]:
    """Of a trial that has not ended: its seeds, the moments of its newest lines, and the speed that it measured."""
    found: dict[int, dict[str, float]] = {seed: {} for seed in trial.seeds}  # the newest losses, and the newest value of the metric
    points: list[tuple[float, int]] = []
    speed: float | None = None
    for seed in trial.seeds:
        for n, line in enumerate(newest_lines(trial.outbox(seed), committed)):
            if seed == trial.seeds[0] and n < _POINTS:
                points.append((line.time / 1000, line.step))
                speed = line.metrics.get(SPEED) if speed is None else speed
            if n == 0:
                found[seed] |= {name: line.metrics[name] for name in main_losses(line.metrics)}
            if metric is not None and metric in line.metrics:
                found[seed].setdefault(metric, line.metrics[metric])
            if (metric is None or metric in found[seed]) and (n + 1 >= _POINTS or seed != trial.seeds[0]):
                break
    return tuple(_seed(seed, metrics, metric) for seed, metrics in found.items()), points[::-1], speed


def _seed(seed: int, metrics: Mapping[str, float], metric: str | None) -> SeedStatus:
    """A seed by its newest metrics. A score that is no number is left out: nothing can be compared with it."""
    score = metrics.get(metric, math.nan) if metric is not None else math.nan
    losses: dict[str, float | None] = {name: float(metrics[name]) for name in main_losses(metrics)}
    return SeedStatus(seed=seed, score=float(score) if math.isfinite(score) else None, losses=losses)


def _rate(points: list[tuple[float, int]], n_seeds: int, speed: float | None) -> float | None:
    """Updates a second: as the clock says, evaluations included; after one epoch as the trial measured it, without them."""
    measured = rate_of(points)
    return speed if measured is None else measured * n_seeds


def _fresher(trial: TrialStatus, now: TrialProgress | None, metric: str | None) -> TrialStatus:
    """Update a trial with the driver's newer progress."""
    if now is None or trial.ended:
        return trial
    if now.state != "RUNNING":  # handed out and waiting for a place, or not handed out yet
        return trial.model_copy(update={"state": "PENDING"}) if now.state is None else trial
    seeds = [_newer(one, now.metrics[one.seed], metric) if one.seed in now.metrics else one for one in trial.seeds]
    rate = _rate(list(now.moments), len(seeds), trial.rate)
    at = max([when for when in (trial.at, now.moments[-1][0] if now.moments else None) if when is not None], default=None)
    newest = {"state": "RUNNING", "step": max(now.step, trial.step), "seeds": tuple(seeds), "rate": rate, "at": at}
    return trial.model_copy(update=newest)


def _newer(one: SeedStatus, metrics: Mapping[str, float], metric: str | None) -> SeedStatus:
    found = _seed(one.seed, metrics, metric)
    return found if found.score is not None else found.model_copy(update={"score": one.score})


def _objective(experiment: Experiment, trials: Iterable[Trial]) -> Objective | None:
    """By what configurations are compared; None where nothing is measured but losses."""
    settings, found = experiment.configuration, objective_of(experiment.configuration)
    if settings.get("objective") or settings.get("best"):
        return found
    evaluation = settings.get("evaluation") or next((trial.configuration.get("evaluation") for trial in trials), None)
    data = next((trial.dataset for trial in trials), experiment.dataset)
    if not evaluation or evaluation.get("environment") or data.get("environment"):
        return found if evaluation else None
    discrete = str(data.get("schema", {}).get("action", ["float32"])[0]).startswith(("int", "uint"))
    return Objective.checked({"metric": "holdout/action_match" if discrete else "holdout/action_error"})


def _chosen(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings with their values, short, by the last part of their names: alpha, learning_rate."""
    return {name.removesuffix(".name").rpartition(".")[2]: _short(value) for name, value in settings.items()}


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
