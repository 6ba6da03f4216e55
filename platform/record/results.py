"""What came of an experiment, and what it measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import Field, PrivateAttr, computed_field

from ..settings.objective import is_cost
from ..statistics import Summary, summarise
from ..storage.outbox import Line
from .base import Computed, Record
from .status import Scored, State

if TYPE_CHECKING:
    from ...algos.environments.scores import Reference

RETURN, NORMALIZED, SPEED = "evaluation/return", "evaluation/normalized_return", "time/updates_per_second"
SUCCESS, COSTS = "evaluation/success", "evaluation/cost"
RETURNED = "return"  # the metric of episodes that a policy played
Ended = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True, eq=False)
class Curve:
    """A metric of one seed; values may be NaN or infinite, as the trial reported them."""

    steps: np.ndarray  # int64 [points], ascending
    values: np.ndarray  # float64 [points]

    @classmethod
    def of(cls, points: Iterable[tuple[int, float]]) -> Self:
        steps, values = zip(*points, strict=True)
        return cls(np.array(steps, np.int64), np.array(values, np.float64))

    def at(self, step: int) -> float | None:
        """The value at a step, None where there is none."""
        found = np.flatnonzero(self.steps == step)
        return float(self.values[found[0]]) if len(found) else None

    def best(self, *, is_cost: bool) -> tuple[float, int] | None:
        """The largest finite value, of costs the smallest, and its step."""
        if not (finite := np.isfinite(self.values)).any():
            return None
        at = int(np.where(finite, -self.values if is_cost else self.values, -np.inf).argmax())
        return float(self.values[at]), int(self.steps[at])


class Checkpoint(Record):
    """The best checkpoint of a seed, where a metric chooses one."""

    metric: str
    value: float
    step: int


class SeedResult(Computed):
    """The result of a seed; its `curves` are read on first access."""

    seed: int
    number: int | None = None  # of its configuration in a sweep
    trial: str = ""  # the name of its trial's folder
    status: State
    reason: str = ""  # why it failed, or ended early
    is_final: bool = False  # a resume leaves it as it is
    step: int  # gradient steps done
    first_bad_step: int | None = None  # where it diverged
    n_steps: int = 0  # gradient steps that it was to do
    seeds_together: int = 1  # seeds of its trial, which train as one stack
    last_sign: float | None = None  # when it last measured something
    metrics: dict[str, float] = Field(default_factory=dict[str, float])  # the last of each
    best: Checkpoint | None = None
    policy: str | None = None  # its policy package; of a seed that a scheduler stopped, the best until then where that was kept
    run_id: str | None = None  # in MLflow
    model_version: str | None = None
    warning: str = ""  # what its metrics give cause to doubt, as diverging values
    _read: Callable[[], Iterable[Line]] = PrivateAttr(default=tuple)

    def reading(self, read: Callable[[], Iterable[Line]]) -> Self:
        """Itself, with what gives its metrics by step."""
        self._read = read
        return self

    @computed_field
    @property
    def score(self) -> float | None:
        """The value of the best checkpoint, else the last return; None where neither was measured."""
        return self.metrics.get(RETURN) if self.best is None else self.best.value

    @property
    def reached(self) -> int:
        """Gradient steps up to which it learned well."""
        return self.step if self.first_bad_step is None else self.first_bad_step

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Measured curves by name."""
        points: dict[str, list[tuple[int, float]]] = {}
        for line in self._read():
            for name, value in line.metrics.items():
                points.setdefault(name, []).append((line.step, value))
        return {name: Curve.of(found) for name, found in points.items()}

    def best_value(self, metric: str) -> tuple[float, int] | None:
        """The best finite value of a metric and its step: the largest, of losses and errors the smallest."""
        return self.curves[metric].best(is_cost=is_cost(metric)) if metric in self.curves else None

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


class ConfigurationResult(Computed):
    """Seeds that differ in nothing else."""

    experiment: str = ""
    number: int | None = None  # in a sweep or a benchmark
    label: str = ""  # what tells it from others, in words
    chosen: dict[str, Any] = Field(default_factory=dict[str, Any])  # settings in which the experiment's configurations differ
    choice: dict[str, Any] = Field(default_factory=dict[str, Any])  # what was searched, under PBT with the values at the end
    algorithm: str
    dataset: str = ""  # as it was chosen, else its name
    data: dict[str, Any] = Field(default_factory=dict[str, Any])  # as its trials keep it: name, fingerprint, n_transitions, …
    environment: str | None = None  # where it was scored, or else its data recorded
    settings: dict[str, Any]  # all that decides its results
    n_steps: int = 0
    state: State = "RUNNING"
    ended: Ended | None = None  # None: some trial has not ended
    value: float | None = None  # the objective over its seeds
    scores: dict[int, float] = Field(default_factory=dict[int, float])  # of the seeds that did not fail, the objective's metric
    interval: tuple[float, float] | None = None  # of the metric's mean over seeds
    level: float | None = None  # of the interval: 0.95; None where there is none, or fewer than five seeds, too few for 95 %
    seeds: list[SeedResult]

    @property
    def step(self) -> int:
        """Gradient steps that its furthest seed has done."""
        return max((one.step for one in self.seeds), default=0)

    @property
    def failed(self) -> dict[int, str]:
        """Reasons by seed."""
        return {one.seed: one.reason for one in self.seeds if one.status == "FAILED"}

    def metrics(self) -> list[str]:
        """Names of what any seed has measured, in the order of their first appearance."""
        return list({name: None for seed in self.seeds for name in seed.curves})

    @cached_property
    def _scored(self) -> dict[str, Score]:
        return {}

    def score(self, metric: str) -> Score:
        """The metric where training ended, over the seeds that finished; while none has, at the last step that all have reached.

        Seeds that failed never count, nor do those without a finite number there.
        """
        if metric not in self._scored:
            self._scored[metric] = self._score(metric)
        return self._scored[metric]

    def _score(self, metric: str) -> Score:
        finished = [seed for seed in self.seeds if seed.status == "FINISHED"]
        compared = [s.seed for s in finished or self.seeds if s.status != "FAILED" and metric in s.curves]
        ends = [int(seed.curves[metric].steps[-1]) for seed in self.seeds if seed.seed in compared]
        step = (max(ends) if finished else min(ends)) if ends else 0
        values, left_out = dict[int, float](), dict[int, str]()
        for seed in self.seeds:
            value = seed.curves[metric].at(step) if metric in seed.curves else None
            if seed.status == "FAILED":
                left_out[seed.seed] = f"failed: {seed.reason or 'nobody knows why'}"
            elif seed.seed not in compared and finished and seed.status != "FINISHED":
                doing = "is still running" if seed.status == "RUNNING" else "was stopped"
                left_out[seed.seed] = f"{doing}, at step {seed.step:,} of {seed.n_steps:,}"
            elif value is None:
                left_out[seed.seed] = f"has no {metric} at step {step:,}" if metric in seed.curves else f"has no {metric}"
            elif not np.isfinite(value):
                left_out[seed.seed] = f"measured {value} at step {step:,}"
            else:
                values[seed.seed] = value
        return Score(step, step >= self.n_steps, values, left_out, summarise(list(values.values())) if values else None)


class Results(Scored):
    """An experiment's results so far and its folder."""

    name: str
    state: State
    reason: str = ""  # why it failed or was stopped
    died: bool = False  # its command is gone and has not said so
    folder: str = ""
    created: float = 0.0
    last_sign: float = 0.0  # its newest sign of life
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])  # the experiment's
    data: dict[str, Any] = Field(default_factory=dict[str, Any])  # as the experiment keeps it: name, fingerprint, n_transitions, …
    environment: str | None = None  # where policies were scored, or else the data recorded
    episodes: int | None = None  # of an evaluation
    surroundings: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])  # machines and versions
    configurations: list[ConfigurationResult] = Field(default_factory=list[ConfigurationResult])
    left_out: list[ConfigurationResult] = Field(default_factory=list[ConfigurationResult], exclude=True, repr=False)
    models: list[str] = Field(default_factory=list[str])
    # registered in MLflow: one, where configurations learned from several datasets one for each
    tracking: dict[str, Any] = Field(default_factory=dict[str, Any])  # what is known of its run in MLflow
    tracking_uri: str = ""
    run_id: str | None = None  # of the parent run
    look: str = ""  # the command or the address that shows the runs
    undelivered: str = ""  # what the tracking server has not got, and why
    views: dict[str, str] = Field(default_factory=dict[str, str])  # links into MLflow's pages, by what they show

    @computed_field
    @property
    def best(self) -> dict[str, int]:
        """By dataset the place in `configurations` of the best that went to its end; of equals the first."""
        found: dict[str, int] = {}
        for place, one in enumerate(self.configurations):
            before = found.get(one.dataset)
            if one.ended != "finished" or one.value is None or self.objective is None:
                continue
            if before is None or self.objective.is_better(one.value, self.configurations[before].value or 0.0):
                found[one.dataset] = place
        return found

    @property
    def seeds(self) -> list[SeedResult]:
        """All of them, in order of configuration and seed."""
        return sorted((seed for one in self.configurations for seed in one.seeds), key=lambda seed: (seed.number or 0, seed.seed))

    @property
    def sweep(self) -> list[ConfigurationResult]:
        """Of a sweep all configurations, in order of number, those too that a page leaves out; empty elsewhere."""
        found = [*self.configurations, *self.left_out] if "search" in self.settings else []
        return sorted(found, key=lambda one: one.number or 0)

    @property
    def data_return(self) -> float | None:
        """Mean return of the data's own episodes; None where it was not kept."""
        return self.data.get("return_mean")

    @cached_property
    def reference(self) -> Reference | None:
        """Reference of normalised returns; None if it disagrees or none were measured."""
        from ...algos.environments.scores import reference_in  # which reads the catalog

        found = reference_in(self.environment, str(self.data["name"]))
        for run in (run for one in self.configurations for run in one.seeds if {RETURN, NORMALIZED} <= set(run.curves)):
            value, normalized = run.curves[RETURN].values[-1], run.curves[NORMALIZED].values[-1]
            if found is not None and np.isclose(found.score(value), normalized, rtol=1e-3, atol=1e-2):
                return found
        return None


class Metrics(Record):
    """A seed's metrics at a step."""

    trial: str
    seed: int
    step: int
    time: float
    metrics: dict[str, float]  # NaN and infinite as they were reported; JSON has null for them


class Report(Record):
    """A page, and what lies beside it."""

    of: list[str]  # experiments
    page: str
    folder: str
    files: list[str]
    remark: str = ""  # what could not be done, in one sentence
