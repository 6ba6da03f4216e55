"""How an experiment stands: every trial, the best so far, how fast it goes, how long it will take, what failed.

`results/status_reader.py` reads a `Status` from the storage alone; the command line, the page and programs show it.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import statistics as middle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, computed_field

from ..settings.objective import Mode, Objective
from ..statistics import FEW, LEVEL, summarise
from ..storage.experiments import CANCELLED
from ..words import resume_command
from .base import Computed, Record
from .jobs import Job

State = Literal["PENDING", "RUNNING", "FINISHED", "FAILED", "KILLED"]
_ORDER: tuple[State, ...] = ("RUNNING", "PENDING", "KILLED", "FAILED", "FINISHED")  # one state for several trials: the first found
_RECENT = 5  # intervals between lines that a rate is the median of


class SeedStatus(Record):
    """A seed of a trial."""

    seed: int
    score: float | None = None  # the newest value of the metric by which the experiment's configurations are compared
    reason: str = ""  # why it failed; empty otherwise
    losses: dict[str, float | None] = Field(default_factory=dict[str, float | None])  # the newest of `main_losses`


class TrialStatus(Computed):
    """A trial: some seeds of a configuration, trained together."""

    identity: str  # the name of its folder
    number: int | None  # of its configuration in a sweep or a benchmark
    state: State
    step: int  # gradient steps that each of its seeds has done
    n_steps: int
    seeds: tuple[SeedStatus, ...]
    configuration: str = ""  # equal for trials that differ in their seeds alone
    chosen: dict[str, str] = Field(
        default_factory=dict[str, str]
    )  # what tells its configuration from others; empty where there is one only
    kind: str = ""  # algorithm and dataset: trials of one kind are expected to be equally fast
    reason: str = ""  # why it failed or was stopped
    is_final: bool = False  # nothing will be tried again: it finished, diverged, or a scheduler stopped it
    rate: float | None = None  # updates a second, of all its seeds, evaluations included; None: not measured yet
    at: float | None = None  # its newest sign of life
    attempts: int = 0  # how often a worker began it
    data: str = ""  # fingerprint of its data
    source: str = ""  # where these lie, or what they are called
    title: str = ""  # its name; empty: its experiment's

    @computed_field
    @property
    def label(self) -> str:
        """Settings that identify its configuration: alpha=2.5, learning_rate=0.0003; its title outside of sweeps."""
        if self.title and self.number is None:
            return self.title
        return ", ".join(f"{name}={value}" for name, value in self.chosen.items())

    @property
    def scores(self) -> dict[int, float]:
        return {one.seed: one.score for one in self.seeds if one.score is not None}

    @property
    def failed(self) -> dict[int, str]:
        """Reasons by seed."""
        return {one.seed: one.reason for one in self.seeds if one.reason}

    @property
    def ended(self) -> bool:
        """Nothing of it is left to do now."""
        return self.state in ("FINISHED", "FAILED", "KILLED")

    @property
    def was_stopped(self) -> bool:
        """A scheduler ended it, and not a fault."""
        return self.state == "KILLED" and self.is_final

    @property
    def may_go_on(self) -> bool:
        """A resume can go on with it, once its experiment does not run; with one that was cancelled alone only by name."""
        return self.state not in ("RUNNING", "FINISHED") and (not self.is_final or self.reason == CANCELLED)

    @property
    def share(self) -> float:
        """How much of it is done; all where nothing more comes."""
        return 1.0 if self.ended and self.is_final else min(self.step / self.n_steps, 1.0) if self.n_steps else 0.0


class ConfigurationStatus(Record):
    """The trials of a configuration, which differ in their seeds alone."""

    trials: tuple[TrialStatus, ...] = Field(exclude=True, repr=False)
    value: float | None  # the objective; None while a seed that has not failed has not been measured

    @computed_field
    @property
    def number(self) -> int | None:
        return self.trials[0].number

    @computed_field
    @property
    def label(self) -> str:
        """Searched settings, as text."""
        return self.trials[0].label

    @property
    def chosen(self) -> Mapping[str, str]:
        return self.trials[0].chosen

    @property
    def state(self) -> State:
        """One for all its trials."""
        states = {trial.state for trial in self.trials}
        return next(state for state in _ORDER if state in states)

    @property
    def was_stopped(self) -> bool:
        """A scheduler ended it."""
        return self.state == "KILLED" and all(trial.is_final for trial in self.trials)

    @computed_field
    @property
    def step(self) -> int:
        """Gradient steps that all its seeds have done that have not failed."""
        going = [trial.step for trial in self.trials if len(trial.failed) < len(trial.seeds)]
        return min(going or [max(trial.step for trial in self.trials)])

    @property
    def scores(self) -> dict[int, float]:
        return {seed: value for trial in self.trials for seed, value in trial.scores.items()}

    @computed_field
    @property
    def seeds(self) -> int:
        """How many have been measured."""
        return len(self.scores)

    @property
    def rate(self) -> float | None:
        """Updates a second of what runs of it now."""
        return _together(self.trials)

    @computed_field
    @property
    def interval(self) -> tuple[float, float] | None:
        """Bootstrap interval of the mean over seeds, see `statistics.interval_name`; None for fewer than two."""
        return _interval(tuple(self.scores[seed] for seed in sorted(self.scores)))

    @computed_field
    @property
    def level(self) -> float | None:
        """Of the interval: 0.95; None: there is none, or one of too few seeds for 95 %."""
        return LEVEL if self.seeds >= FEW else None


class Fault(Record):
    """Seeds of a trial that failed for the same reason."""

    at: float | None
    number: int | None  # of its configuration
    seeds: tuple[int, ...]
    reason: str


class Budget(Record):
    """An experiment's limits, if any (configurations, hours, gpu_hours), and what it has spent."""

    limits: dict[str, float] = Field(default_factory=dict[str, float])
    spent: dict[str, float] = Field(default_factory=dict[str, float])  # over every resume


class Scored(Computed):
    """Scores that rank configurations."""

    objective: Objective | None = None  # of scores; None: nothing is measured but losses

    @computed_field
    @property
    def metric(self) -> str | None:
        return None if self.objective is None else self.objective.metric

    @computed_field
    @property
    def mode(self) -> Mode:
        return "max" if self.objective is None else self.objective.direction


class Status(Scored):
    """An experiment at a moment."""

    name: str
    folder: str
    state: State
    reason: str = ""  # why it failed or was stopped
    created: float = 0.0
    since: float = 0.0  # when its state became what it is
    now: float = 0.0
    trials: tuple[TrialStatus, ...] = ()
    budget: Budget = Budget()
    may_stop: str = ""  # the scheduler that may stop trials before their end
    trouble: tuple[str, ...] = ()  # what could not be read
    job: Job | None = None  # the newest that ran it, where one is known

    @functools.cached_property
    def configurations(self) -> tuple[ConfigurationStatus, ...]:
        """Trials by their configurations, in the order of their numbers; without an objective none has a value."""
        groups: dict[str, list[TrialStatus]] = {}
        for trial in self.trials:
            groups.setdefault(trial.configuration, []).append(trial)
        return tuple(ConfigurationStatus.model_construct(trials=tuple(g), value=_value(g, self.objective)) for g in groups.values())

    @computed_field
    @property
    def expected(self) -> int | None:
        """Configurations that the budget allows; None: those that there are, or nobody knows."""
        most = self.budget.limits.get("configurations")
        return None if most is None else int(most)

    @functools.cached_property
    def losses(self) -> tuple[str, ...]:
        """Those of `main_losses` that any seed has, in that order."""
        return main_losses(name for trial in self.trials for seed in trial.seeds for name in seed.losses)

    @computed_field
    @property
    def datasets(self) -> list[str]:
        """Datasets of its trials: folders, URIs or catalog names."""
        return list(dict.fromkeys(trial.source for trial in self.trials if trial.source))

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING"

    @property
    def runs(self) -> bool:
        """It runs, or is about to."""
        return self.state in ("PENDING", "RUNNING")

    @property
    def is_over(self) -> bool:
        """It does not run, and its job, which writes a report at last, has ended too."""
        return not (self.runs or (self.job is not None and self.job.is_alive))

    def later(self, now: float) -> Self:
        """Copy it with its time passed and left as of `now`."""
        return self.model_copy(update={"now": now})

    @computed_field
    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """Trials by state; those that a scheduler stopped, or somebody cancelled, under "STOPPED"."""
        return dict(Counter("STOPPED" if trial.was_stopped else trial.state for trial in self.trials))

    @computed_field
    @property
    def elapsed(self) -> float:
        """Seconds that the command has run that runs it; of one that does not run, from its creation to its last sign of life."""
        if self.is_running:
            return max(self.now - self.since, 0.0)
        last = max((trial.at for trial in self.trials if trial.at), default=self.created)
        return max((max(last, self.created) if self.state == "KILLED" else self.since) - self.created, 0.0)

    @functools.cached_property
    def ranked(self) -> list[ConfigurationStatus]:
        """Configurations that have a value, the best first; of equal ones the earlier."""
        valued = [one for one in self.configurations if one.value is not None]
        return sorted(valued, key=lambda one: (one.value or 0.0) * (-1 if self.mode == "max" else 1))

    @computed_field
    @property
    def best(self) -> ConfigurationStatus | None:
        """The best so far, by the newest value of the objective; None where several data are learned from: their scores differ."""
        return self.ranked[0] if self.ranked and len({trial.data for trial in self.trials}) == 1 else None

    @computed_field
    @property
    def rate(self) -> float | None:
        """Updates a second of all that runs now."""
        return _together(self.trials)

    @computed_field
    @property
    def updates(self) -> int:
        """Gradient steps of all seeds together."""
        return sum(trial.step * len(trial.seeds) for trial in self.trials)

    @functools.cached_property
    def _to_come(self) -> int:
        """Trials that have not been proposed yet, as far as the budget says how many."""
        if self.expected is None or not self.configurations:
            return 0
        per = round(len(self.trials) / len(self.configurations)) or 1
        return max(self.expected - len(self.configurations), 0) * per

    @computed_field
    @property
    def share(self) -> float:
        """How much is done, 0 to 1: of the updates, where a trial that ended early counts as done."""
        done = sum(trial.share * len(trial.seeds) for trial in self.trials)
        seeds = sum(len(trial.seeds) for trial in self.trials)
        if not seeds:
            return float(self.state == "FINISHED")
        return done / (seeds + self._to_come * seeds / len(self.trials))

    @computed_field
    @property
    def eta(self) -> float | None:
        """Seconds until the last trial ends, were all trained to their end; None where nothing is measured yet, or nothing runs.

        What runs goes on at the rate at which it went lately; what waits takes the first slot that becomes free, at the median
        rate of its kind. There are as many slots as trials run now.
        """
        running = [trial for trial in self.trials if trial.state == "RUNNING"]
        waiting = [trial for trial in self.trials if trial.state == "PENDING"]
        if not self.is_running or not running:
            return None
        usual = _usual([*running, *(trial for trial in self.trials if trial.ended)])
        typical = usual(None)
        if typical is None:
            return None
        slots: list[float] = []
        for trial in running:
            rate = trial.rate / len(trial.seeds) if trial.rate else usual(trial.kind) or typical
            since = max(trial.at or self.now, self.since)
            slots.append(max((trial.n_steps - trial.step) / rate - max(self.now - since, 0.0), 0.0))
        lengths = [(trial.n_steps - trial.step) / (usual(trial.kind) or typical) for trial in waiting]
        if self._to_come:
            lengths += [middle.median(trial.n_steps for trial in self.trials) / typical] * self._to_come
        heapq.heapify(slots)
        for length in lengths:
            heapq.heappush(slots, heapq.heappop(slots) + length)
        left = max(slots)
        if hours := self.budget.limits.get("hours"):
            most = max((hours - self.budget.spent.get("hours", 0.0)) * 3600, 0.0)
            left = most if self.expected is None else min(left, most)
        return left

    @computed_field
    @functools.cached_property
    def errors(self) -> list[Fault]:
        """Failures, newest first."""
        found: list[Fault] = []
        for trial in self.trials:
            for reason in dict.fromkeys(trial.failed.values()):
                seeds = tuple(seed for seed, why in trial.failed.items() if why == reason)
                found.append(Fault(at=trial.at, number=trial.number, seeds=seeds, reason=reason))
        return sorted(found, key=lambda fault: -(fault.at or 0.0))

    @computed_field
    @property
    def advice(self) -> str:
        """Advice on continuing a stopped, unfinished experiment, in a sentence; empty if there is nothing to do."""
        if self.runs or (self.state == "FINISHED" and all(trial.ended for trial in self.trials)):
            return ""
        if self.state == "FAILED" and self.trials and all(trial.ended and trial.is_final for trial in self.trials):
            return ""  # what diverged would diverge again
        return f"To go on from the last checkpoints: {resume_command(self.folder)}"


def main_losses(names: Iterable[str]) -> tuple[str, ...]:
    """The losses to show, two at most: the critic's and the actor's, else what else an update lowers first."""
    losses = [name for name in dict.fromkeys(names) if name.startswith("train/") and name.endswith("_loss")]
    first = ("train/critic_loss", "train/actor_loss")
    return tuple(sorted(losses, key=lambda name: first.index(name) if name in first else len(first))[:2])


def rate_of(points: Sequence[tuple[float, int]]) -> float | None:
    """Gradient steps a second from moments (seconds, step), the oldest first: the median of the newest intervals.

    The median passes over the gap that a resumed trial has.
    """
    pairs = list(itertools.pairwise(points))[-_RECENT:]
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0] and b[1] > a[1]]
    return middle.median(rates) if rates else None


def _together(trials: Sequence[TrialStatus]) -> float | None:
    rates = [trial.rate for trial in trials if trial.rate and trial.state == "RUNNING"]
    return sum(rates) if rates else None


@functools.lru_cache(4096)
def _interval(values: tuple[float, ...]) -> tuple[float, float] | None:
    return summarise(values).interval if len(values) > 1 else None


def _usual(trials: Sequence[TrialStatus]) -> Callable[[str | None], float | None]:
    """The median rate of a seed by kind, in gradient steps a second; of None: of all."""
    rates: dict[str | None, list[float]] = {None: []}
    for trial in trials:
        if trial.rate:
            rates[None].append(trial.rate / len(trial.seeds))
            rates.setdefault(trial.kind, []).append(trial.rate / len(trial.seeds))
    return lambda kind: middle.median(rates[kind]) if rates.get(kind) else None


def _value(trials: Sequence[TrialStatus], objective: Objective | None) -> float | None:
    scores = {seed: value for trial in trials for seed, value in trial.scores.items()}
    due = [one.seed for trial in trials for one in trial.seeds if not one.reason]
    if objective is None or not due or not all(seed in scores for seed in due):
        return None
    return objective.aggregate(scores[seed] for seed in due)
