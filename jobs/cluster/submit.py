"""`d3ray submit JOB ...`: run a job on a Ray cluster with the d3ray that is installed here, and follow its log."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ... import __version__
from ...data.errors import ConfigError
from ..command.base import JobConfig, Result, option
from ..command.console import note
from ..command.options import read_line, resolve
from ..command.running import load_job, run_command

if TYPE_CHECKING:
    from ...platform.cluster.jobs import Cluster, JobEnd, SubmittedJob

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
    working_dir: str | None = option(None, "folder that goes along and in which the job runs; null: none", example=".")
    env: dict[str, str] = option(
        dict,
        f"environment variables for the job, which Ray shows to whoever may submit; {', '.join(_CARRIED)} goes along where it is "
        "set here",
    )
    secrets: tuple[str, ...] = option(
        (),
        "names of environment variables that are set here and go along without being shown: AWS_SECRET_ACCESS_KEY, …",
        example=["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
    )
    check_cluster: bool = option(True, "look first whether the cluster's nodes have what d3ray needs")
    wait: bool = option(True, "show the job's log until it ends; without, the command returns at once")


@dataclass(frozen=True, kw_only=True)
class SubmitResult(Result):
    """The job, and how it ended (None where it was not waited for)."""

    job: SubmittedJob | None = None
    end: JobEnd | None = None


def run(config: SubmitConfig) -> SubmitResult:
    """Submits and follows. Raises ConfigError or StorageError before anything runs where arguments or the cluster are unusable."""
    from ...platform.cluster.jobs import Cluster
    from ...platform.cluster.secret_text import refuse_secrets
    from ...platform.cluster.staging import PACKAGE, cargo, carried_config

    if config.job in ("submit", "jobs", "up", "down"):
        raise ConfigError(f"submit runs jobs on a cluster; {config.job} works from here.")
    title = f"d3ray {config.job}"
    _, config_class = load_job(config.job)
    if read_line(config_class, config.arguments, title).action != "run":
        return SubmitResult(made="", exit_status=run_command(config.job, config.arguments))
    resolved, _ = resolve(config_class, None, config.arguments, title=title)  # refuses here what would fail there
    way = "name the environment variable that holds it under secrets"
    for values in (list(config.arguments), resolved.model_dump(mode="json")):
        refuse_secrets(values, f"{title}:", way)
    env, secrets = _variables(config, os.environ)
    arguments, files = carried_config(config.arguments, resolved.files() if isinstance(resolved, JobConfig) else ())
    working_dir = Path(config.working_dir) if config.working_dir is not None else None
    cluster = Cluster(config.address)
    plugins: tuple[str, ...] = getattr(resolved, "plugins", ())
    with cargo(files=files, plugins=plugins, working_dir=working_dir, secrets=secrets) as load:
        others = "".join(f", {module.name}" for module in load.modules[1:])
        note(f"Sending d3ray {__version__} of {PACKAGE}{others} to {cluster.address}.")
        if config.check_cluster:
            cluster.check(load)
        job = cluster.submit(config.job, arguments, cargo=load, env=env)
    note(f"Job {job.id} runs: {shlex.join(['d3ray', config.job, *arguments])}")
    look = {"its log": job.command("logs"), "its end": job.command("wait"), "stop it": job.command("stop")}
    if not config.wait:
        return SubmitResult(made=f"{job.id} runs on {job.address}.", look=look, job=job)
    try:
        end = cluster.follow(job, write)
    except KeyboardInterrupt:
        end = _interrupted(cluster, job)
    made, failed = told(job, end)
    return SubmitResult(made=made, look={"log": job.command("logs")}, failed=failed, exit_status=end.exit_status, job=job, end=end)


def _variables(config: SubmitConfig, here: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The job's environment that Ray shows, and the one that it does not. Raises ConfigError."""
    from ...platform.cluster.secret_text import secret_in, secret_name

    for name, value in config.env.items():
        if secret_name(name) or secret_in(value):
            raise ConfigError(
                f"d3ray submit: env.{name} looks like a secret, and Ray shows a job's environment; "
                f"export {name} in your shell and submit with secrets=[{name}]."
            )
    if missing := [name for name in config.secrets if name not in here]:
        raise ConfigError(f"d3ray submit: secrets names {', '.join(missing)}, which is not set in this shell's environment.")
    secrets = {name: here[name] for name in config.secrets}
    shown = dict(config.env)
    for name in _CARRIED:
        if here.get(name) and name not in shown and name not in secrets:
            (secrets if secret_in(here[name]) else shown)[name] = here[name]
    return shown, secrets


def told(job: SubmittedJob, end: JobEnd) -> tuple[str, str]:
    """What to say of a job's end: what was made, and what failed."""
    if end.status == "SUCCEEDED":
        return f"{job.id} succeeded.", ""
    return f"{job.id} has ended.", f"{job.id} {end.status.lower()} with exit status {end.exit_status}."


def write(text: str) -> None:
    """A piece of the job's log."""
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
    raise KeyboardInterrupt(
        f"{job.id} goes on. To follow it: {job.command('logs')}\nTo wait for it: {job.command('wait')}\n"
        f"To stop it: {job.command('stop')}"
    )
