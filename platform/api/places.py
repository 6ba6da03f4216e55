"""Where an experiment runs: what a cluster and this machine have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..record.jobs import DataJobName, Job, JobName

HERE = "this machine"  # the address of jobs that are its processes


@dataclass(frozen=True)
class Submission:
    """A job that is to run an experiment, or to make a dataset, which is then what `experiment` and `storage` name."""

    job: JobName | DataJobName  # which
    config: Mapping[str, Any]  # its settings, JSON
    experiment: str
    storage: str  # what it runs
    flags: Sequence[str] = ()  # as `--resume`
    plugins: Sequence[str] = ()  # modules that it needs
    files: Sequence[str] = ()  # settings that name files of this machine
    working_directory: Path | None = None  # where it runs; None: here, and on a cluster in a folder of Ray's
    env: Mapping[str, str] = field(default_factory=dict[str, str])  # variables of its environment, which a cluster shows
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])  # those that it does not show
    check: bool = True  # whether to look first whether a cluster can run d3ray


class Place(Protocol):
    """Who runs jobs. All raise StorageError where it cannot be reached."""

    @property
    def address(self) -> str:
        """Of the cluster; "this machine"."""
        ...

    def start(self, submission: Submission) -> Job:
        """Starts a job, which outlives this process."""
        ...

    def jobs(self, experiment: str | None = None, storage: str | None = None) -> list[Job]:
        """Those that ran, or run, an experiment of a storage; None: whichever."""
        ...

    def log(self, job: Job) -> str:
        """Return its output so far."""
        ...

    def stop(self, job: Job) -> None:
        """Interrupts it as Ctrl-C would, and waits for its end; what it has not put in order after 15 s is killed."""
        ...

    def ask(self, command: str, arguments: Sequence[str]) -> str:
        """Run a d3ray command there and return its output. Raises ConfigError with its message."""
        ...

    def forget(self, job: Job) -> None:
        """Deletes what is kept of a job that has ended."""
        ...
