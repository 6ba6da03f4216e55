"""`d3ray submit JOB ...`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...data.config import Config
from ...data.errors import ConfigError
from ..command.base import JobConfig, Result, option
from ..command.commands import FROM_HERE, load
from ..command.console import note
from ..command.options import read_line, resolve
from ..command.running import run_command
from ..training.resume import ResumeConfig

if TYPE_CHECKING:
    from ...platform.cluster.jobs import Cluster, JobEnd, SubmittedJob
    from ...platform.cluster.staging import Cargo


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
        "environment variables for the job, which Ray shows to whoever may submit; MLFLOW_TRACKING_URI goes along where it is set "
        "here",
    )
    secrets: tuple[str, ...] = option(
        (),
        "names of environment variables that are set here and go along without being shown: AWS_SECRET_ACCESS_KEY, …",
        example=["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
    )
    check_cluster: bool = option(True, "look first whether the cluster's nodes have what d3ray needs")
    check: bool = option(
        False,
        "run nothing but a minute's look at every node (driver, CUDA, torch, storage, clock) and at the tracking server",
    )
    wait: bool = option(True, "show the job's log until it ends; without, the command returns at once")


@dataclass(frozen=True, kw_only=True)
class SubmitResult(Result):
    """The job, and how it ended (None where it was not waited for)."""

    job: SubmittedJob | None = None
    end: JobEnd | None = None


def run(config: SubmitConfig) -> SubmitResult:
    """Submits and follows. Raises ConfigError or StorageError before anything runs where arguments or the cluster are unusable."""
    from ...platform.api.clusters import Jobs, environment, metadata
    from ...platform.api.starting import check_datasets, check_storage
    from ...platform.cluster.secret_text import refuse_secrets
    from ...platform.cluster.staging import cargo, carried_config
    from ...platform.settings.config import Conditions

    if config.job in FROM_HERE:
        raise ConfigError(f"submit runs jobs on a cluster; {config.job} works from here.")
    title = f"d3ray {config.job}"
    _, config_class = load(config.job)
    if read_line(config_class, config.arguments, title).action != "run":
        return SubmitResult(made="", exit_status=run_command(config.job, config.arguments))
    resolved, _ = resolve(config_class, None, config.arguments, title=title)  # refuses here what would fail there
    way = "name the environment variable that holds it under secrets"
    for values in (list(config.arguments), resolved.model_dump(mode="json")):
        refuse_secrets(values, f"{title}:", way)
    if missing := [name for name in config.secrets if name not in os.environ]:
        raise ConfigError(f"d3ray submit: secrets names {', '.join(missing)}, which is not set in this shell's environment.")
    env, secrets = environment(config.env, {name: os.environ[name] for name in config.secrets})
    plugins: tuple[str, ...] = getattr(resolved, "plugins", ())
    arguments, files = carried_config(
        _naming(config.arguments, plugins), resolved.files() if isinstance(resolved, JobConfig) else ()
    )
    working_dir = Path(config.working_dir) if config.working_dir is not None else None
    about: Mapping[str, str] = {}
    check_datasets(resolved.model_dump(mode="json"), working_dir)
    if isinstance(resolved, Conditions):  # it makes an experiment: status and cancel find the job by that
        check_storage(resolved.storage)
        about = metadata(resolved.experiment, resolved.storage)  # pyright: ignore[reportAttributeAccessIssue] - each has one
    elif isinstance(resolved, ResumeConfig):
        check_storage(resolved.said)
        about = metadata(resolved.experiment, resolved.place)
    place = Jobs(config.address, note)
    cluster = place.cluster
    with cargo(files=files, plugins=plugins, working_dir=working_dir, secrets=secrets) as loaded:
        if config.check:
            return _checked(cluster, resolved, loaded, env)
        job = place.send(config.job, arguments, loaded, env, about, check=config.check_cluster)
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


def _naming(arguments: Sequence[str], plugins: Sequence[str]) -> Sequence[str]:
    """Arguments of a job with its plugins named as modules, which they are there, where any is a file of this machine."""
    from ...platform.settings.plugins import is_file, module_names

    if not any(map(is_file, plugins)):
        return arguments
    kept, waiting = list[str](), iter(arguments)
    for argument in waiting:
        name, equals, _ = argument.partition("=")
        if name == "--plugins" and not equals:
            next(waiting, None)
        elif name not in ("plugins", "--plugins"):
            kept.append(argument)
    return [*kept, f"plugins=[{', '.join(module_names(plugins))}]"]


def _checked(cluster: Cluster, resolved: Config, load: Cargo, env: Mapping[str, str]) -> SubmitResult:
    """Looks at the cluster with the eyes of the job that was to be submitted."""
    from ...platform.settings.config import Conditions, ResourcesConfig

    cluster.check(load)
    experiment = resolved if isinstance(resolved, Conditions) else None
    wanted = experiment.resources if experiment else ResourcesConfig()
    gpu = 1.0 if wanted.gpu == "auto" else wanted.gpu
    storage = None if experiment is None else experiment.storage_place
    end = cluster.inspect(storage, wanted.cpu, gpu, cargo=load, env=env, write=write)
    return SubmitResult(made="", failed="" if end.status == "SUCCEEDED" else "Nothing was submitted.", end=end)


def told(job: SubmittedJob, end: JobEnd) -> tuple[str, str]:
    """Describe a job's end: what was made, and what failed."""
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
