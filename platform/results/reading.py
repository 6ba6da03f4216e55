"""Experiments of a storage, found by their names."""

from __future__ import annotations

from typing import Any

from ...data.errors import ConfigError, did_you_mean
from ..storage.experiments import Experiment
from ..storage.folders import Folder


def experiment_names(storage: str) -> list[str]:
    root = Folder(storage)
    return [name for name in root.names() if not name.startswith(".") and (root / name).read("experiment.json") is not None]


def find_experiment(storage: str, name: str) -> Experiment:
    """An experiment, to be read. Raises ConfigError where there is none of that name; the nearest is named."""
    if (Folder(storage) / name).read("experiment.json") is None:
        names = experiment_names(storage)
        near = did_you_mean(name, names) if names else "; storage=FOLDER names another place."
        raise ConfigError(f"There is no experiment {name!r} in {storage}{near}", missing=True)
    return Experiment.look(storage, name)


def kept_settings(experiment: Experiment) -> dict[str, Any]:
    """`job`, `config` and `working_directory` with which it was begun or resumed last. Raises ConfigError: they were not kept."""
    if (found := experiment.settings) is None:
        raise ConfigError(f"{experiment.name} was begun by an earlier d3ray, which kept no settings: say its command again.")
    return found
