"""What came of an experiment, and what it measured."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, computed_field

from .base import Computed, Record
from .status import Scored, State


class Checkpoint(Record):
    """The best checkpoint of a seed, where a metric chooses one."""

    metric: str
    value: float
    step: int


class SeedResult(Computed):
    """What came of a seed."""

    seed: int
    number: int | None = None  # of its configuration in a sweep
    trial: str  # the name of its trial's folder
    status: State
    reason: str = ""  # why it failed, or ended early
    is_final: bool  # a resume leaves it as it is
    step: int  # gradient steps done
    metrics: dict[str, float]  # the last of each
    best: Checkpoint | None = None
    policy: str | None = None  # its policy package; of a seed that a scheduler stopped, the best until then where that was kept
    run_id: str | None = None  # in MLflow
    model_version: str | None = None
    warning: str = ""  # what its metrics give cause to doubt, as diverging values

    @computed_field
    @property
    def score(self) -> float | None:
        """The value of the best checkpoint, else the last return; None where neither was measured."""
        return self.metrics.get("evaluation/return") if self.best is None else self.best.value


class ConfigurationResult(Record):
    """Seeds that differ in nothing else."""

    number: int | None  # in a sweep or a benchmark
    label: str  # what tells it from others, in words
    chosen: dict[str, Any]  # the settings in which the experiment's configurations differ, by dotted name
    choice: dict[str, Any] = Field(default_factory=dict[str, Any])  # what was searched, under PBT with the values at the end
    algorithm: str
    dataset: str
    settings: dict[str, Any]  # all that decides its results
    state: State
    ended: Literal["finished", "stopped", "failed"] | None = None  # None: some trial has not ended
    value: float | None  # the objective over its seeds
    scores: dict[int, float] = Field(default_factory=dict[int, float])  # of the seeds that did not fail, the objective's metric
    interval: tuple[float, float] | None  # of the metric's mean over seeds
    level: float | None  # of the interval: 0.95; None where there is none, or fewer than five seeds, too few for 95 %
    seeds: list[SeedResult]


class Results(Scored):
    """What came of an experiment so far, and where it lies."""

    name: str
    state: State
    folder: str
    configurations: list[ConfigurationResult]
    models: list[str]  # registered in MLflow: one, where configurations learned from several datasets one for each
    tracking_uri: str
    run_id: str | None  # of the parent run
    look: str  # the command or the address that shows the runs
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


class Metrics(Record):
    """What a seed measured in an epoch."""

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
