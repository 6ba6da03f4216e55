"""What came of an experiment, and what it measured."""

from __future__ import annotations

from typing import Any, Literal

from .base import Record
from .status import State


class Checkpoint(Record):
    """The best checkpoint of a seed, where a metric chooses one."""

    metric: str
    value: float
    step: int


class SeedResult(Record):
    """What came of a seed."""

    seed: int
    trial: str
    status: State
    reason: str
    is_final: bool  # a resume leaves it as it is
    step: int
    metrics: dict[str, float]  # the last of each
    best: Checkpoint | None
    score: float | None  # the value of the best checkpoint, else the last return; None where neither was measured
    policy: str | None  # folder of its policy package
    run_id: str | None  # in MLflow
    model_version: str | None
    warning: str  # what its metrics give cause to doubt


class ConfigurationResult(Record):
    """Seeds that differ in nothing else."""

    number: int | None
    label: str  # what tells it from others, in words
    chosen: dict[str, Any]  # the settings in which the experiment's configurations differ, by dotted name
    algorithm: str
    dataset: str
    settings: dict[str, Any]  # all that decides its results
    state: State
    value: float | None  # the objective over its seeds
    interval: tuple[float, float] | None  # of the metric's mean over seeds
    level: float | None  # that it has: 0.95; None where there is none, or fewer than five seeds, which are too few for that
    seeds: list[SeedResult]


class Results(Record):
    """What came of an experiment so far."""

    name: str
    state: State
    folder: str
    metric: str | None
    mode: Literal["max", "min"]
    configurations: list[ConfigurationResult]
    best: dict[str, int]  # by dataset the place in `configurations` of the best that went to its end
    models: list[str]  # registered in MLflow
    tracking_uri: str
    run_id: str | None  # of the parent run
    look: str  # the command or the address that shows the runs


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
