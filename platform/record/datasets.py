"""Datasets: how they stand, and what is in them."""

from __future__ import annotations

from typing import Any, Literal

from .base import Record
from .jobs import Job


class DatasetStatus(Record):
    """How a dataset stands: there, being made, or not made."""

    name: str
    folder: str
    state: Literal["RUNNING", "READY", "FAILED"]
    reason: str = ""  # why it was not made
    lacking: tuple[str, ...] = ()  # of episode, observation, action and reward, what no column of its table is said to be
    remarks: tuple[str, ...] = ()  # what the job that makes it, or made it, has said
    n_episodes: int = 0
    n_transitions: int = 0
    bytes: int = 0
    actions: Literal["continuous", "discrete", "other", ""] = ""  # what algorithms have to take; empty while nobody knows
    observation: str = ""  # the spaces, in a few words
    action: str = ""
    is_image: bool = False  # whether an observation is one image
    action_reach: float | None = None  # the largest magnitude of a continuous action
    environment: str | None = None
    fingerprint: str = ""
    changed: float = 0.0  # seconds since 1970
    elsewhere: bool = False  # it lies outside of the folder of datasets, and is not changed from there
    job: Job | None = None  # the newest that made it, where one is known


class Finding(Record):
    """Something that the doctor found."""

    name: str
    severity: Literal["error", "warning", "note"]
    title: str
    sentence: str
    meaning: str
    remedy: str
    mends: dict[str, Any]  # settings of an ingest that mend it; empty where none does
    settings: dict[str, Any]  # settings of an algorithm that make up for it; empty where none does


class Chart(Record):
    """Counts of values between edges; of a few whole numbers or things, one bin each."""

    title: str
    edges: list[float]  # bins + 1
    counts: list[int]
    second: list[int]  # a part of counts
    second_title: str
    labels: list[str]
    whole: bool


class Moments(Record):
    label: str
    mean: float | None
    std: float | None
    min: float | None
    max: float | None


class Column(Record):
    name: str
    dtype: str
    shape: list[int]  # of a row's entry; none for a number
    names: list[str] | None  # of the numbers in it, where they are known


class Inspected(Record):
    """Describe a dataset and its problems."""

    findings: list[Finding]  # the gravest first
    charts: list[Chart]
    moments: list[Moments]
    columns: list[Column]  # all of them, first `log_prob`, the logarithms of the behaviour's propensities, where they are recorded
    ends: dict[str, int]  # episodes by how they end
    order: list[float]  # mean returns of stretches of episodes, in the order of the data
    notes: list[str]  # what importers decided
    provenance: dict[str, Any]

    @property
    def advice(self) -> dict[str, tuple[Any, str]]:
        """Settings of an algorithm that make up for what was found, each with what that is."""
        return {name: (value, one.title) for one in reversed(self.findings) for name, value in one.settings.items()}


class EpisodeAbout(Record):
    index: int
    steps: int
    score: float  # its undiscounted return
    terminated: bool  # the task ended it; else it was cut


class EpisodeSteps(Record):
    """Numbers of an episode, step by step; of long ones every so many."""

    about: EpisodeAbout
    steps: list[int]
    columns: dict[str, list[float | int | None]]  # by name, as `observation 0`, `action 1` (or their names), `reward`
    has_images: bool
    every: int  # 1: all steps


class TableColumn(Record):
    """A column of a table that is to become a dataset."""

    name: str  # what the file calls it
    usual: str  # what it is by that name; empty: nobody knows
    role: str  # what it was said to be, or may be: a guess; empty: neither
    values: list[str]  # the first of them


class Table(Record):
    """A file with a row a step."""

    columns: list[TableColumn]
    roles: list[str]  # what a column may be
    lacking: list[str]  # of episode, observation, action and reward those that no column is said to be
