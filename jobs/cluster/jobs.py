"""`d3ray jobs list|logs|stop|wait [ID]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from ...data.errors import ConfigError
from ..command.base import JobConfig, Result, option
from ..command.console import note, say
from ..views.columns import aligned
from .submit import told, write

if TYPE_CHECKING:
    from ...platform.cluster.jobs import JobEnd, ListedJob

_SHOWN = 100  # characters of a command


class JobsConfig(JobConfig):
    """Action on submitted jobs."""

    action: Literal["list", "logs", "stop", "wait"] = option("list", "what to do", operand=True)
    id: str | None = option(
        None, "of the job, as submit and list show it; null: the newest", operand=True, example="train-5f3a9c21"
    )
    address: str | None = option(
        None, "of the cluster: http://HOST:8265, or what ray.init takes; null: RAY_ADDRESS", example="http://127.0.0.1:8265"
    )
    follow: bool = option(True, "logs go on until the job ends; without, they end with what is there now")
    format: Literal["text", "json"] = option("text", "of list")

    def after_interrupt(self, command: str) -> str:
        return f"The job goes on. Again: {command}"


@dataclass(frozen=True, kw_only=True)
class JobsResult(Result):
    """The jobs that were listed, or how the job ended (None where it was not waited for)."""

    jobs: Sequence[ListedJob] = ()
    end: JobEnd | None = None


def run(config: JobsConfig) -> JobsResult:
    """Does it. Raises ConfigError or StorageError: no such job, or the cluster cannot be used."""
    from ...platform.cluster.jobs import Cluster

    if config.action == "list":
        if config.id is not None:
            raise ConfigError(f"d3ray jobs list lists all jobs; for one of them: d3ray jobs logs {config.id}.")
        return _list(Cluster(config.address).jobs(), config.format)
    cluster = Cluster(config.address)
    name = config.id
    if name is None:
        if not (known := cluster.jobs()):
            return JobsResult(made=f"The cluster {cluster.address} has no jobs.")
        name = known[0].id
        note(f"{name}: {known[0].command}")
    job = cluster.job(name)
    if config.action == "logs" and not config.follow:
        write(cluster.log(job))
        return JobsResult(made="")
    if config.action == "logs":
        end = cluster.follow(job, write)
        return JobsResult(made=f"{job.id} {end.status.lower()}.", end=end)
    if config.action == "wait":
        end = cluster.wait(job)
        made, failed = told(job, end)
        return JobsResult(made=made, failed=failed, exit_status=end.exit_status, end=end)
    end = cluster.stop(job)
    stopped = "is stopped" if end.status == "STOPPED" else f"had {end.status.lower()} before"
    return JobsResult(made=f"{job.id} {stopped}.", look={"its log": job.command("logs")}, end=end)


def _list(jobs: Sequence[ListedJob], form: str) -> JobsResult:
    if form == "json":
        rows = [asdict(job) | {"started": job.started.isoformat(), "took": job.took.total_seconds()} for job in jobs]
        say(json.dumps(rows))
        return JobsResult(made="", jobs=jobs)
    table = [["job", "status", "started", "took", "command"]]
    table += [[job.id, job.status, f"{job.started:%Y-%m-%d %H:%M}", _short(job.took), _cut(job.command)] for job in jobs]
    for line in aligned(table, right=()) if jobs else ():
        say(line)
    running = sum(job.status in ("RUNNING", "PENDING") for job in jobs)
    return JobsResult(made=f"{len(jobs)} job{'s' * (len(jobs) != 1)}, {running} of them running.", jobs=jobs)


def _short(took: timedelta) -> str:
    return str(timedelta(seconds=round(took.total_seconds())))


def _cut(command: str) -> str:
    return command if len(command) <= _SHOWN else f"{command[: _SHOWN - 1]}…"
