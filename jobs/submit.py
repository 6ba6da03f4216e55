"""`d3ray submit JOB ...`: run a job on a Ray cluster with the d3ray that is installed here, and follow its log."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import __version__
from ..data.errors import ConfigError
from .base import JobConfig, Result, load_job, option, resolve, run_command
from .console import note
from .options import read_line

if TYPE_CHECKING:
    from ..platform.cluster import Cluster, JobEnd, SubmittedJob

_CARRIED = ("MLFLOW_TRACKING_URI",)


class SubmitConfig(JobConfig):
    """Where to run what. Options of `submit` come before the job's name, those of the job after it."""

    job: str = option(..., "the job, as train", operand=True, example="train")
    arguments: tuple[str, ...] = option(
        (),
        "of the job; paths are the cluster's, but a --config file is sent along",
        operand="rest",
        example=["--config", "sweep.yaml"],
    )
    address: str | None = option(
        None, "of the cluster: http://HOST:8265, or what ray.init takes; null: RAY_ADDRESS", example="http://127.0.0.1:8265"
    )
    env: dict[str, str] = option(dict, f"environment variables for the job; {', '.join(_CARRIED)} goes along where it is set here")
    check_cluster: bool = option(True, "look first whether the cluster's nodes have what d3ray needs")
    follow: bool = option(True, "show the job's log until it ends; without, the command returns at once")


@dataclass(frozen=True, kw_only=True)
class SubmitResult(Result):
    """The job, and how it ended (None where it was not followed)."""

    job: SubmittedJob | None = None
    end: JobEnd | None = None


def run(config: SubmitConfig) -> SubmitResult:
    """Submits and follows. Raises ConfigError or StorageError before anything runs where arguments or the cluster are unusable."""
    from ..platform.cluster import Cluster, carried_config, staged_package
    from ..platform.staging import PACKAGE

    if config.job == "submit":
        raise ConfigError("submit runs other jobs on a cluster; it cannot run itself there.")
    _, config_class = load_job(config.job)
    if read_line(config_class, config.arguments, f"d3ray {config.job}").action != "run":
        return SubmitResult(made="", exit_status=run_command(config.job, config.arguments))
    resolve(config_class, None, config.arguments, title=f"d3ray {config.job}")  # refuses here what would fail there
    arguments, files = carried_config(config.arguments)
    env = {name: os.environ[name] for name in _CARRIED if os.environ.get(name)} | config.env
    cluster = Cluster(config.address)
    with staged_package(files) as staged:
        note(f"Sending d3ray {__version__} of {PACKAGE} to {cluster.address}.")
        if config.check_cluster:
            cluster.check(staged)
        job = cluster.submit(config.job, arguments, staged=staged, env=env)
    note(f"Job {job.id} runs: d3ray {shlex.join([config.job, *arguments])}")
    look = {"follow it": job.follow_command, "stop it": job.stop_command}
    if not config.follow:
        return SubmitResult(made=f"{job.id} runs on {job.address}.", look=look, job=job)
    try:
        end = cluster.follow(job, _write)
    except KeyboardInterrupt:
        end = _interrupted(cluster, job)
    failed = "" if end.status == "SUCCEEDED" else f"{job.id} {end.status.lower()} with exit status {end.exit_status}."
    made = f"{job.id} succeeded." if end.status == "SUCCEEDED" else f"{job.id} has ended."
    return SubmitResult(made=made, look={"log": job.follow_command}, failed=failed, exit_status=end.exit_status, job=job, end=end)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _interrupted(cluster: Cluster, job: SubmittedJob) -> JobEnd:
    """Asks whether to stop the job, where somebody can answer; otherwise it goes on.

    Raises:
        KeyboardInterrupt: it goes on; the message says how to follow and stop it.
    """
    if sys.stdin.isatty() and sys.stderr.isatty():
        try:
            sys.stderr.write(f"\nStop {job.id} as well? [y/N] ")
            sys.stderr.flush()
            if sys.stdin.readline().strip().lower() in ("y", "yes"):
                note("Stopping it; it has 15 seconds to save what it has.")
                return cluster.stop(job)
        except KeyboardInterrupt:
            pass
    raise KeyboardInterrupt(f"{job.id} goes on. To follow it: {job.follow_command}\nTo stop it: {job.stop_command}")
