"""Jobs on a Ray cluster. Each says in its metadata which experiment it runs, so that other machines find it."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...data.errors import ConfigError
from ...data.storage.claims import scratch_names
from ...data.uris import without_secrets
from ...data.version import __version__
from ..cluster.jobs import Cluster, ListedJob, SubmittedJob
from ..cluster.secret_text import refuse_secrets, secret_in, secret_name
from ..cluster.staging import PACKAGE, Cargo, cargo, carried_config
from ..record.jobs import Job
from ..settings.plugins import module_names
from .places import Submission

CARRIED = ("MLFLOW_TRACKING_URI",)
_EXPERIMENT, _STORAGE = "d3ray_experiment", "d3ray_storage"


class Jobs:
    """Who runs jobs on a cluster, by its address; it is connected to once something is asked. `tell` hears what goes there."""

    def __init__(self, address: str | None, tell: Callable[[str], None] = lambda sentence: None) -> None:
        self._named, self._tell = address, tell
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._named)
        return self._cluster

    @property
    def address(self) -> str:
        return self.cluster.address

    def start(self, submission: Submission) -> Job:
        """Submits it with the d3ray that is imported here."""
        refuse_secrets(dict(submission.config), f"d3ray {submission.job}:", "give its name to secrets=…")
        env, secrets = environment(submission.env, submission.secrets)
        # what names a file is said on the command line, from where it is sent along
        config = {name: value for name, value in submission.config.items() if value not in submission.files}
        if submission.plugins:
            config["plugins"] = module_names(submission.plugins)
        named = [f"{name}={value}" for name, value in submission.config.items() if value in submission.files]
        with tempfile.TemporaryDirectory(prefix=scratch_names("submit")) as folder:
            file = Path(folder) / "config.yaml"
            file.write_text(json.dumps(config, indent=1))
            arguments, files = carried_config([*named, "--config", str(file), *submission.flags], submission.files)
        about = metadata(submission.experiment, submission.storage)
        with cargo(files=files, plugins=submission.plugins, working_dir=submission.working_directory, secrets=secrets) as load:
            job = self.send(submission.job, arguments, load, env, about, check=submission.check)
        return next(self._job(one) for one in self.cluster.jobs() if one.id == job.id)

    def send(
        self, job: str, arguments: Sequence[str], load: Cargo, env: Mapping[str, str], about: Mapping[str, str], *, check: bool
    ) -> SubmittedJob:
        """Submits `d3ray JOB ARGUMENTS`. Raises StorageError: the cluster lacks something, where it is to be checked."""
        others = "".join(f", {module.name}" for module in load.modules[1:])
        self._tell(f"Sending d3ray {__version__} of {PACKAGE}{others} to {self.address}.")
        if check:
            self.cluster.check(load)
        return self.cluster.submit(job, arguments, cargo=load, env=env, metadata=about)

    def jobs(self, experiment: str | None = None, storage: str | None = None) -> list[Job]:
        """Those that the cluster remembers."""
        told = [self._job(one) for one in self.cluster.jobs() if _EXPERIMENT in one.metadata]
        kept = None if storage is None else without_secrets(storage)
        return [job for job in told if experiment in (None, job.experiment) and kept in (None, job.storage)]

    def log(self, job: Job) -> str:
        return self.cluster.log(SubmittedJob(job.id, self.address))

    def stop(self, job: Job) -> None:
        self.cluster.stop(SubmittedJob(job.id, self.address))

    def ask(self, command: str, arguments: Sequence[str]) -> str:
        """Run a short job and return what its command prints, without the lines before it."""
        log: list[str] = []
        arguments, files = carried_config(arguments)
        with cargo(files=files) as load:
            job = self.cluster.submit(command, arguments, cargo=load)
        end = self.cluster.follow(job, log.append)
        lines = [*itertools.dropwhile(lambda line: not line.startswith("d3ray "), "".join(log).splitlines())][1:]
        if end.exit_status:
            raise ConfigError(lines[-1] if lines else f"d3ray {command} failed on {self.address}.")
        return "\n".join(lines)

    def forget(self, job: Job) -> None:
        """Nothing: the cluster forgets by itself."""

    def _job(self, one: ListedJob) -> Job:
        started, over = one.started.timestamp(), one.exit_status is not None
        return Job(
            id=one.id,
            state=one.status,  # pyright: ignore[reportArgumentType] - Ray's words are these
            address=self.address,
            command=one.command,
            experiment=one.metadata.get(_EXPERIMENT, ""),
            storage=one.metadata.get(_STORAGE, ""),
            started=started,
            ended=started + one.took.total_seconds() if over else None,
            exit_status=one.exit_status,
            message=one.message if over else "",
        )


def metadata(experiment: str, storage: str) -> dict[str, str]:
    """Return a job's metadata, without secrets because Ray displays it."""
    return {_EXPERIMENT: experiment, _STORAGE: without_secrets(storage)}


def environment(env: Mapping[str, str], secrets: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """A job's variables that Ray shows, and those that it does not, with what goes along by itself.

    Raises ConfigError: one of the first looks like a secret.
    """
    for name, value in env.items():
        if secret_name(name) or secret_in(value):
            raise ConfigError(
                f"d3ray submit: env.{name} looks like a secret, and Ray shows a job's environment; "
                f"export {name} in your shell and submit with secrets=[{name}]."
            )
    shown, hidden = dict(env), dict(secrets)
    for name in CARRIED:
        if (value := os.environ.get(name)) and name not in shown and name not in hidden:
            (hidden if secret_in(value) else shown)[name] = value
    return shown, hidden
