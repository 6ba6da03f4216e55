"""Handing an experiment to whoever is to run it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...data.errors import ConfigError
from ..record.jobs import Job, JobName
from ..record.settings import Checked
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from .configs import check
from .places import Place, Submission
from .processes import Processes

RESULTS = "./d3ray_results"


def start(
    config: Mapping[str, Any],
    job: JobName,
    place: Place,
    found: Checked | None = None,
    *,
    resume: bool | str = False,
    replace: bool = False,
    working_directory: str | None = None,
    env: Mapping[str, str] | None = None,
    secrets: Sequence[str] = (),
    check_cluster: bool = True,
) -> Job:
    """Starts an experiment at a place. Arguments and errors as `submit`'s; `found` is what `check` has said of the config.

    Of `resume` a name is that of the one trial to go on with.
    """
    if resume and replace:
        raise ConfigError("resume goes on with the earlier run and replace deletes it; say one of them.")
    found = found or check(config, job=job, working_directory=working_directory)
    if not isinstance(place, Processes):
        check_storage(str(config.get("storage", RESULTS)))
        check_datasets(found.config, None if working_directory is None else Path(working_directory))
    _check_free(place, found, resume=bool(resume), replace=replace)
    if missing := [name for name in secrets if name not in os.environ]:
        raise ConfigError(f"secrets names {', '.join(missing)}, which is not set in this process's environment.")
    submission = Submission(
        job=job,
        config={**config, "storage": found.storage},
        experiment=found.name,
        storage=found.storage,
        flags=[
            *(["--resume"] if resume else []),
            *([f"trial={resume}"] if isinstance(resume, str) else []),
            *(["--replace"] if replace else []),
        ],
        plugins=found.plugins,
        files=found.files,
        working_directory=None if working_directory is None else Path(working_directory),
        env=env or {},
        secrets={name: os.environ[name] for name in secrets},
        check=check_cluster,
    )
    return place.start(submission)


def check_storage(storage: str) -> None:
    """Raises ConfigError for a storage that on a cluster is another folder than here: a relative path."""
    said = storage.removeprefix("file://")
    if not (Path(said).is_absolute() or "://" in said):
        here = Path(said).expanduser().absolute()
        raise ConfigError(f"storage is {said!r}, a folder of whichever machine runs: say an absolute path, as {here}, or a URI.")


def check_datasets(config: Mapping[str, Any], sent: Path | None) -> None:
    """Raises ConfigError for a dataset that is here alone: a relative path, of which no folder is `sent` along."""
    names = [config.get("dataset"), *(one["name"] for one in config.get("datasets", ()) if isinstance(one, dict))]
    for said in (name for name in names if isinstance(name, str) and "://" not in name):
        path = Path(said)
        if not path.is_absolute() and path.exists() and not (sent and (sent / path).exists()):
            raise ConfigError(
                f"dataset is {said!r}, a folder of this machine alone: copy it to where every node finds it, and name it by its "
                "URI or absolute path; or send the folder that it is in along, with working_dir."
            )


def _check_free(place: Place, found: Checked, *, resume: bool, replace: bool) -> None:
    """Raises ConfigError where a command could not begin, as far as can be seen from here."""
    where, folder = f"The experiment {found.name!r} in {found.storage}", Folder(found.storage) / found.name
    begun = folder.read("experiment.json") is not None
    runs = begun and not Experiment(folder).lock.is_free()
    if runs or any(job.is_alive for job in place.jobs(found.name, found.storage)):
        raise ConfigError(f"{where} is running: wait for it, or cancel it first.")
    if begun and not (resume or replace):
        raise ConfigError(f"{where} is there already: resume it, replace it, or say another name.")
