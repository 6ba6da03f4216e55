"""A process or a Ray job that does something for a user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .base import Record

JobName = Literal["train", "sweep", "benchmark", "judge"]
DataJobName = Literal["ingest", "derive"]


class Job(Record):
    """A process or a Ray job that runs an experiment, or ran it."""

    id: str
    state: Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"]
    address: str  # of the cluster; "this machine"
    command: str
    experiment: str
    storage: str
    started: float
    ended: float | None = None
    exit_status: int | None = None  # None while it runs
    message: str = ""  # of Ray, where the job could not be started

    @property
    def is_alive(self) -> bool:
        return self.state in ("PENDING", "RUNNING")


def newest(jobs: Sequence[Job]) -> Job | None:
    return max(jobs, key=lambda job: job.started, default=None)


def by_experiment(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(job.experiment, []).append(job)
    return found
