"""Settings that can be run, what is wrong with others, and what they would take."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, computed_field

from ..words import count, rounded, size_text, time_text
from .base import Computed, Record
from .jobs import JobName


class Problem(Record):
    """Explain a faulty setting; `setting` is its dotted name, empty if several are concerned."""

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


class Planned(Computed):
    """Estimate an experiment's cost; its `str` is for people."""

    name: str
    n_configurations: int
    n_trials: int
    n_seeds: int  # of all trials together
    at_once: int  # trials
    n_nodes: int
    updates_per_second: float  # of one trial, its seeds counted one by one; the mean over trials
    wall_seconds: float
    cpu_hours: float
    gpu_hours: float
    disk: dict[str, int]  # bytes of checkpoints, policies, metrics, tracking
    begins: float  # seconds since 1970
    at_most: str  # why it may take less; empty: nothing stops a trial early
    gpu_share: float  # of a trial
    probed: dict[str, float]  # seconds, side (by side), kinds (of trial that were measured), of_kinds (that there are)
    notes: list[str] = Field(default_factory=list[str])

    @computed_field
    @property
    def disk_bytes(self) -> int:
        return sum(self.disk.values())

    @computed_field
    @property
    def ends(self) -> float:
        """Seconds since 1970, if it began now."""
        return self.begins + self.wall_seconds

    @computed_field
    @property
    def trials(self) -> int:
        return self.n_trials

    @computed_field
    @property
    def seeds(self) -> int:
        return self.n_seeds

    @property
    def _most(self) -> str:
        return "at most" if self.at_most else "about"

    @computed_field
    @property
    def text(self) -> str:
        """In one line."""
        most, gpu = self._most, [f"{self._most} {rounded(self.gpu_hours)} GPU hours"] if self.gpu_hours else []
        trials, cpu = f"{count(self.n_trials, 'trial')}, {self.at_once} at once", f"{most} {rounded(self.cpu_hours)} CPU hours"
        return ", ".join(
            [trials, f"{most} {time_text(self.wall_seconds)}", cpu, *gpu, f"{most} {size_text(self.disk_bytes)} of disk"]
        )

    def __str__(self) -> str:
        most = self._most
        tried = f"{count(self.n_configurations, 'configuration')}, " if self.n_configurations > 1 else ""
        end = datetime.fromtimestamp(self.ends).astimezone()
        day = "" if end.date() == datetime.fromtimestamp(self.begins).date() else f"{end:%a %d %b} "
        parts = ", ".join(f"{name} {size_text(size)}" for name, size in self.disk.items() if size)
        each, speed = round(self.n_seeds / self.n_trials), self.updates_per_second
        rows = {
            "trials": f"{tried}{count(self.n_trials, 'trial')} of {count(each, 'seed')}, {self.at_once} at once on "
            f"{count(self.n_nodes, 'node')}",
            "speed": f"about {rounded(speed)} updates/s a trial, {rounded(speed * self.at_once)} in all",
            "wall time": f"{most} {time_text(self.wall_seconds)}, until {day}{end:%H:%M}",
            "GPU hours": f"{most} {rounded(self.gpu_hours)}, {rounded(self.gpu_share)} GPU a trial" if self.gpu_hours else "0",
            "CPU hours": f"{most} {rounded(self.cpu_hours)}",
            "disk": f"{most} {size_text(self.disk_bytes)}: {parts}",
        }
        probed = self.probed
        of = f"{probed['kinds']:.0f} of {count(int(probed['of_kinds']), 'kind')} of trial"
        said = [f"An upper bound: {self.at_most}."] if self.at_most else []
        said.append(f"Measured in {probed['seconds']:.0f} s, {probed['side']:.0f} side by side, {of}. Nothing was launched.")
        lines = [*(f"{name + ':':<11}{text}" for name, text in rows.items()), *said, *self.notes]
        return "\n".join([f"{self.name} would take:", *(f"  {line}" for line in lines)])


class Expected(Record):
    """Estimate an experiment's cost from a similar one."""

    seconds: float  # of work, one trial after another
    gpu_hours: float
    like: str  # the experiment
    text: str  # all of it, for people
