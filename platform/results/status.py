"""How an experiment stands: every trial, the best so far, how fast it goes, how long it will take, what failed.

A `View` is a moment of an experiment. `status_reader.py` makes it from the storage alone; `d3ray status` and the live view of
`train` and `sweep` draw it.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import statistics as middle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..settings.objective import Objective
from ..statistics import FEW, LEVEL, summarise
from ..words import resume_command

State = Literal["RUNNING", "PENDING", "FINISHED", "FAILED", "KILLED"]
_ORDER: tuple[State, ...] = ("RUNNING", "PENDING", "KILLED", "FAILED", "FINISHED")  # one state for several trials: the first found
_RECENT = 5  # intervals between lines that a rate is the median of


@dataclass(frozen=True)
class TrialView:
    """A trial: some seeds of a configuration, trained together."""

    identity: str
    number: int | None  # of its configuration, in a sweep or a benchmark
    configuration: str  # equal for trials that differ in their seeds alone
    chosen: Mapping[str, str]  # what tells its configuration from others; empty where there is one only
    kind: str  # algorithm and dataset: trials of one kind are expected to be equally fast
    seeds: tuple[int, ...]
    state: State
    step: int  # gradient steps that each of its seeds has done
    n_steps: int
    reason: str = ""  # why it failed or was stopped
    is_final: bool = False  # nothing will be tried again: it finished, diverged, or a scheduler stopped it
    scores: Mapping[int, float] = field(default_factory=dict[int, float])  # the metric, by seed; the last in a finished one
    losses: Mapping[int, Mapping[str, float]] = field(default_factory=dict[int, Mapping[str, float]])  # the newest, by seed
    failed: Mapping[int, str] = field(default_factory=dict[int, str])  # reasons, by seed
    rate: float | None = None  # updates a second, of all its seeds, evaluations included; None: not measured yet
    at: float | None = None  # seconds since 1970 of its newest sign of life
    attempts: int = 0  # how often a worker began it
    data: str = ""  # fingerprint of its data
    source: str = ""  # where these lie, or what they are called
    title: str = ""  # what it was called; empty: after its experiment

    @property
    def label(self) -> str:
        """What tells its configuration from others: alpha=2.5, learning_rate=0.0003; or what it is called, outside of sweeps."""
        if self.title and self.number is None:
            return self.title
        return ", ".join(f"{name}={value}" for name, value in self.chosen.items())

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left to do now."""
        return self.state in ("FINISHED", "FAILED", "KILLED")

    @property
    def was_stopped(self) -> bool:
        """Whether a scheduler ended it, and not a fault."""
        return self.state == "KILLED" and self.is_final

    @property
    def share(self) -> float:
        """How much of it is done; all where nothing more comes."""
        return 1.0 if self.ended and self.is_final else min(self.step / self.n_steps, 1.0) if self.n_steps else 0.0


@dataclass(frozen=True)
class ConfigurationView:
    """The trials of a configuration, which differ in their seeds alone."""

    trials: tuple[TrialView, ...]
    value: float | None  # the objective; None while a seed that has not failed has not been measured

    @property
    def number(self) -> int | None:
        """Its number in a sweep."""
        return self.trials[0].number

    @property
    def label(self) -> str:
        """What was searched, in words."""
        return self.trials[0].label

    @property
    def chosen(self) -> Mapping[str, str]:
        """What was searched."""
        return self.trials[0].chosen

    @property
    def state(self) -> State:
        """One for all its trials."""
        states = {trial.state for trial in self.trials}
        return next(state for state in _ORDER if state in states)

    @property
    def was_stopped(self) -> bool:
        """Whether a scheduler ended it."""
        return self.state == "KILLED" and all(trial.is_final for trial in self.trials)

    @property
    def step(self) -> int:
        """Gradient steps that all its seeds have done that have not failed."""
        going = [trial.step for trial in self.trials if len(trial.failed) < len(trial.seeds)]
        return min(going or [max(trial.step for trial in self.trials)])

    @property
    def n_steps(self) -> int:
        """Gradient steps that each seed is to do."""
        return self.trials[0].n_steps

    @property
    def n_seeds(self) -> int:
        """Seeds, those that failed included."""
        return sum(len(trial.seeds) for trial in self.trials)

    @property
    def scores(self) -> dict[int, float]:
        """The metric by seed."""
        return {seed: value for trial in self.trials for seed, value in trial.scores.items()}

    @property
    def rate(self) -> float | None:
        """Updates a second of what runs of it now."""
        return _together(self.trials)

    @property
    def reason(self) -> str:
        """Why it failed or was stopped."""
        return next((trial.reason for trial in self.trials if trial.reason), "")

    @property
    def interval(self) -> tuple[float, float] | None:
        """Bootstrap interval of the mean over seeds, see `statistics.interval_name`; None for fewer than two."""
        return _interval(tuple(self.scores[seed] for seed in sorted(self.scores)))

    @property
    def level(self) -> float | None:
        """That the interval has; None: there is none, or one of too few seeds for 95 %."""
        return LEVEL if len(self.scores) >= FEW else None


def _together(trials: Sequence[TrialView]) -> float | None:
    rates = [trial.rate for trial in trials if trial.rate and trial.state == "RUNNING"]
    return sum(rates) if rates else None


@functools.lru_cache(4096)
def _interval(values: tuple[float, ...]) -> tuple[float, float] | None:
    return summarise(values).interval if len(values) > 1 else None


@dataclass(frozen=True)
class Fault:
    """Seeds of a trial that failed for the same reason."""

    at: float | None  # seconds since 1970
    number: int | None
    seeds: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class View:
    """An experiment at a moment."""

    name: str
    folder: str
    state: State
    reason: str  # why it failed or was stopped
    created: float  # seconds since 1970, as all moments here
    since: float  # when its state became what it is
    now: float
    metric: str | None  # what scores are; None: nothing is measured but losses
    mode: Literal["max", "min"]
    trials: tuple[TrialView, ...]
    configurations: tuple[ConfigurationView, ...]
    expected: int | None = None  # configurations that the budget allows; None: those that there are, or nobody knows
    budget: Mapping[str, float] = field(default_factory=dict[str, float])  # configurations, hours, gpu_hours, where limited
    spent: Mapping[str, float] = field(default_factory=dict[str, float])  # of hours and gpu_hours, over every resume
    may_stop: str = ""  # the scheduler that may stop trials before their end
    trouble: Sequence[str] = ()  # what could not be read

    @functools.cached_property
    def losses(self) -> tuple[str, ...]:
        """Those of `main_losses` that any trial has, in that order."""
        return main_losses(name for trial in self.trials for losses in trial.losses.values() for name in losses)

    @property
    def datasets(self) -> list[str]:
        """What its trials learn from: folders, URIs or catalog names."""
        return list(dict.fromkeys(trial.source for trial in self.trials if trial.source))

    @property
    def is_running(self) -> bool:
        """Whether a command runs it now."""
        return self.state == "RUNNING"

    def at(self, now: float) -> View:
        """The same a little later: time that has passed, and that is left."""
        return replace(self, now=now)

    @functools.cached_property
    def counts(self) -> dict[str, int]:
        """Trials by state; those that a scheduler stopped under "STOPPED"."""
        return dict(Counter("STOPPED" if trial.was_stopped else trial.state for trial in self.trials))

    @property
    def elapsed(self) -> float:
        """Seconds that the command has run that runs it; of one that does not run, from its creation to its last sign of life."""
        if self.is_running:
            return max(self.now - self.since, 0.0)
        return max((max(self._last, self.created) if self.state == "KILLED" else self.since) - self.created, 0.0)

    @property
    def _last(self) -> float:
        return max((trial.at for trial in self.trials if trial.at), default=self.created)

    @functools.cached_property
    def ranked(self) -> list[ConfigurationView]:
        """Configurations that have a value, the best first; of equal ones the earlier."""
        valued = [one for one in self.configurations if one.value is not None]
        return sorted(valued, key=lambda one: (one.value or 0.0) * (-1 if self.mode == "max" else 1))

    @property
    def best(self) -> ConfigurationView | None:
        """The best so far, by the newest value of the objective; None where several data are learned from: their scores differ."""
        return self.ranked[0] if self.ranked and len({trial.data for trial in self.trials}) == 1 else None

    @property
    def rate(self) -> float | None:
        """Updates a second of all that runs now."""
        return _together(self.trials)

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

    @property
    def share(self) -> float:
        """How much is done: of the updates, where a trial that ended early counts as done."""
        done = sum(trial.share * len(trial.seeds) for trial in self.trials)
        seeds = sum(len(trial.seeds) for trial in self.trials)
        if seeds:
            seeds += self._to_come * seeds / len(self.trials)
        return done / seeds if seeds else 0.0

    @functools.cached_property
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
        if hours := self.budget.get("hours"):
            most = max((hours - self.spent.get("hours", 0.0)) * 3600, 0.0)
            left = most if self.expected is None else min(left, most)
        return left

    @functools.cached_property
    def faults(self) -> list[Fault]:
        """What failed, the newest first."""
        found: list[Fault] = []
        for trial in self.trials:
            for reason in dict.fromkeys(trial.failed.values()):
                seeds = tuple(seed for seed, why in trial.failed.items() if why == reason)
                found.append(Fault(trial.at, trial.number, seeds, reason))
        return sorted(found, key=lambda fault: -(fault.at or 0.0))

    @property
    def advice(self) -> str:
        """What to do about an experiment that does not run and is not done, in a sentence; empty where there is nothing to do."""
        if self.is_running or (self.state == "FINISHED" and all(trial.ended for trial in self.trials)):
            return ""
        if self.state == "FAILED" and self.trials and all(trial.ended and trial.is_final for trial in self.trials):
            return ""  # what diverged would diverge again
        return f"To go on from the last checkpoints: {resume_command(self.folder)}"


def main_losses(names: Iterable[str]) -> tuple[str, ...]:
    """Of metrics the losses to show: the critic's and the actor's, else what else an update lowers first; two at most."""
    losses = [name for name in dict.fromkeys(names) if name.startswith("train/") and name.endswith("_loss")]
    first = ("train/critic_loss", "train/actor_loss")
    return tuple(sorted(losses, key=lambda name: first.index(name) if name in first else len(first))[:2])


def _usual(trials: Sequence[TrialView]) -> Any:
    """The median rate of a seed by kind, in gradient steps a second; of None: of all."""
    rates: dict[str | None, list[float]] = {None: []}
    for trial in trials:
        if trial.rate:
            rates[None].append(trial.rate / len(trial.seeds))
            rates.setdefault(trial.kind, []).append(trial.rate / len(trial.seeds))
    return lambda kind: middle.median(rates[kind]) if rates.get(kind) else None


def rate_of(points: Sequence[tuple[float, int]]) -> float | None:
    """Gradient steps a second from moments (seconds, step), the oldest first: the median of the newest intervals.

    The median passes over the gap that a resumed trial has.
    """
    pairs = list(itertools.pairwise(points))[-_RECENT:]
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0] and b[1] > a[1]]
    return middle.median(rates) if rates else None


def arrange(trials: Sequence[TrialView], objective: Objective | None) -> tuple[ConfigurationView, ...]:
    """Trials by their configurations, in the order of their numbers; without an objective none has a value."""
    groups: dict[str, list[TrialView]] = {}
    for trial in trials:
        groups.setdefault(trial.configuration, []).append(trial)
    return tuple(ConfigurationView(tuple(group), _value(group, objective)) for group in groups.values())


def _value(trials: Sequence[TrialView], objective: Objective | None) -> float | None:
    scores = {seed: value for trial in trials for seed, value in trial.scores.items()}
    due = [seed for trial in trials for seed in trial.seeds if seed not in trial.failed]
    if objective is None or not due or not all(seed in scores for seed in due):
        return None
    return objective.aggregate(scores[seed] for seed in due)
