"""Starting experiments, and finding them again."""

from __future__ import annotations

import builtins
from typing import Any

from ...data.errors import StorageError
from ..record.jobs import JobName, by_experiment, newest
from ..record.status import Status
from ..results.reading import experiment_names, find_experiment
from ..settings.config import absolute
from ..storage.folders import Folder
from .configs import Given, check, plain
from .handle import ExperimentHandle
from .places import Place
from .processes import Processes
from .starting import RESULTS, start


def submit(
    config: Given, *, job: JobName = "train", address: str | None = None, resume: bool = False, replace: bool = False, **how: Any
) -> ExperimentHandle:
    """Starts an experiment, and returns at once. It outlives this process.

    Args:
        config: The settings, as a YAML file of `d3ray train` has them, or a config object.
        job: What they are of.
        address: Of a Ray cluster, `http://HOST:8265` or what `ray.init` takes; None: a process of this machine, with a Ray of its
            own unless `RAY_ADDRESS` names one.
        resume: Go on with an experiment of that name in that storage.
        replace: Delete it, and begin anew.
        how: `working_directory`, where it runs and plugins may lie (a cluster gets a copy of it); `env`, variables of its
            environment; `secrets`, names of variables of this process that a cluster gets without showing them; `check_cluster`,
            whether to look first whether its nodes have what d3ray needs, which takes seconds.

    Raises:
        ConfigError: a setting cannot be used, or there is an experiment of that name already and neither was said, or it runs.
        StorageError: the cluster or the storage cannot be reached.
    """
    found = check(config, job=job, working_directory=how.get("working_directory"))
    handle = ExperimentHandle(found.name, found.storage, place_at(address))
    start(plain(config, job), job, handle.place, found, resume=resume, replace=replace, **how)
    return handle


def open(name: str, *, storage: str = RESULTS, address: str | None = None) -> ExperimentHandle:
    """An experiment that was begun, by whomever.

    `address` is of the cluster that runs it or ran it, for its logs, and for all where the storage is the cluster's own. Raises
    ConfigError: there is none, and no job is about to begin it; the nearest name is said; StorageError.
    """
    handle = ExperimentHandle(name, absolute(storage), place_at(address))
    if handle.job() is None:
        find_experiment(handle.storage, name)
    return handle


def list(storage: str = RESULTS, *, address: str | None = None) -> builtins.list[Status]:
    """How every experiment of a storage stands, those first that were begun last; also those that a job is about to begin.

    Raises StorageError: the storage or the cluster cannot be reached.
    """
    place, root = place_at(address), absolute(storage)
    found, jobs = builtins.list[Status](), by_experiment(place.jobs(None, root))
    for name in dict.fromkeys([*experiment_names(root), *jobs]):
        try:
            found.append(ExperimentHandle(name, root, place).status_with(newest(jobs.get(name, []))))
        except StorageError as error:  # one that is damaged does not hide the others
            found.append(Status(name=name, folder=(Folder(root) / name).name, state="FAILED", reason=str(error)))
    return sorted(found, key=lambda status: -status.created)


def place_at(address: str | None) -> Place:
    """Who runs jobs: a cluster, or this machine."""
    if address is None:
        return Processes()
    from .clusters import Jobs

    return Jobs(address)
