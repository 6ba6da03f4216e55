"""Settings that can be run, what is wrong with others, and what they would take."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from .base import Record
from .jobs import JobName


class Problem(Record):
    """What is wrong with a setting; `setting` is its dotted name, empty where it is about several."""

    setting: str
    sentence: str


class Checked(Record):
    """Settings that can be run: `config` has every default written out."""

    job: JobName
    name: str  # the experiment's
    storage: str
    config: dict[str, Any]
    plugins: list[str] = Field(default_factory=list[str])
    files: list[str] = Field(default_factory=list[str])  # settings that name files of this machine


class AlgorithmAbout(Record):
    """An algorithm as a form needs it."""

    name: str
    actions: Literal["continuous", "discrete", "both"]
    about: str  # one line
    settings: dict[str, Any]  # JSON Schema: default, description, range and source of each
    presets: dict[str, dict[str, Any]]  # values by preset
    preset_sources: dict[str, str]
    online: bool = False  # whether it learns from what it does alone, and not from a dataset


class Planned(Record):
    """What an experiment would take."""

    trials: int
    seeds: int
    at_once: int  # trials
    wall_seconds: float
    cpu_hours: float
    gpu_hours: float
    disk_bytes: int
    at_most: str  # why it may take less; empty: nothing stops a trial early
    text: str  # all of it, for people


class Expected(Record):
    """What an experiment would take, by one that was like it."""

    seconds: float  # of work, one trial after another
    gpu_hours: float
    like: str  # the experiment
    text: str  # all of it, for people
