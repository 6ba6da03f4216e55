"""What a judgement cannot begin with, looked at before any work."""

from __future__ import annotations

from ...algos.environments.make import make
from ...data.dataset import Dataset
from ...data.errors import ConfigError, DataError
from ...data.uris import without_secrets
from ..places import open_place
from ..settings.evaluation import check_spaces
from ..storage.folders import Folder
from ..storage.resuming import check_name
from .judgement import RECORD
from .settings import JudgeSettings


def check_folder(settings: JudgeSettings, *, again: bool) -> None:
    """Raises ConfigError where a judgement of that name cannot be begun."""
    check_name(settings.experiment_name)
    if (shown := without_secrets(settings.storage_place)) != settings.storage_place:
        raise ConfigError(
            f"storage is {shown} with credentials, which Tune would keep with a judgement's trials: leave them to the environment."
        )
    folder = Folder(settings.storage_place) / settings.experiment_name
    trains = folder.read("experiment.json") is not None
    if not again and (trains or folder.read(RECORD) is not None):
        flags = "--resume to go on with it, --replace to delete it, or " if settings.n_steps != 0 or not trains else ""
        what = "an experiment" if trains else "a judgement"
        raise ConfigError(
            f"There is {what} {settings.experiment_name!r} in {settings.storage_place} already: say {flags}another name."
        )


def check_no_experiment(settings: JudgeSettings) -> None:
    """Raises ConfigError where a judgement that trains nothing would lie in the folder of an experiment."""
    folder = Folder(settings.storage_place) / settings.experiment_name
    if folder.read("experiment.json") is not None:
        raise ConfigError(
            f"{folder} is an experiment, with whose training this judgement, which trains nothing, has nothing to do: say another "
            "name."
        )


def check_environment(settings: JudgeSettings, dataset: Dataset) -> None:
    """Raises ConfigError where policies for these logs cannot play."""
    if (place := settings.played) is None:
        return
    with make(place) as vector:
        check_spaces(dataset, vector.spec, place.id, "environment")


def logs_of(place: str) -> Dataset:
    """The dataset of a place. Raises ConfigError or DataError where it is none that tells what policies are worth."""
    dataset = open_place(place)
    if not isinstance(dataset, Dataset):
        raise ConfigError(f"{place} is no dataset: policies are judged by logs.")
    if dataset.spec.action_kind not in ("discrete", "continuous"):
        raise DataError(
            f"The actions of {dataset.name!r} are {dataset.spec.action_kind}; discrete or continuous ones can be judged."
        )
    if dataset.n_episodes < 2:
        raise DataError(f"{dataset.name!r} has one episode, which does not tell how far others would differ; give two or more.")
    return dataset
