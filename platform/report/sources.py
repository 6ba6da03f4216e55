"""What a user may name where metrics are wanted: an experiment, a trial, CSV files, a run of MLflow, a registered model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ...data.errors import ConfigError, did_you_mean
from ..record.results import Results
from ..results.csv_files import is_metrics, read_csv
from ..results.experiment import read_results
from ..results.reading import find_experiment
from ..storage.folders import Folder
from ..tracking.measured import is_run, read_run


def read_sources(sources: Sequence[str], storage: str, tracking: str | None = None) -> list[Results]:
    """The metrics of each of several sources; those of equal names are told apart by what was written. See `read_source`."""
    found = {source: read_source(source, storage, tracking) for source in sources}
    names = Counter(one.name for one in found.values())
    return [one if names[one.name] == 1 else _renamed(one, source) for source, one in found.items()]


def _renamed(results: Results, name: str) -> Results:
    renamed = [c.model_copy(update={"experiment": name}) for c in results.configurations]
    return results.model_copy(update={"name": name, "configurations": renamed})


def read_source(source: str, storage: str, tracking: str | None = None) -> Results:
    """The metrics of what a text names.

    That is an experiment of the storage, or EXPERIMENT/TRIAL there; the folder or URI of either, wherever it lies; a CSV file of a
    metric, a folder of them, or one of such folders (d3ray's and d3rlpy's); `runs:/ID`, or `models:/NAME@ALIAS`, whose run is
    meant.

    Raises: ConfigError: there is nothing of that name, the nearest experiment being named, or a policy and no metrics. DataError: a
    file holds no metrics, or an experiment has no trials yet. StorageError: something cannot be read.
    """
    if is_run(source):
        return read_run(source, tracking, storage)
    if source.endswith(".csv") and Path(source).is_file():
        return read_csv(Path(source))
    if Path(source).is_file():
        raise ConfigError(f"{source} is another kind of file: of files metrics are read from .csv, with lines epoch,step,value.")
    name, _, trial = source.strip("/").partition("/")
    here = Folder(storage)
    if (here / name).read("experiment.json") is not None:
        return _trial(storage, name, trial) if trial else read_results(storage, name)
    folder = Folder(source.rstrip("/"))
    if folder.read("experiment.json") is not None:
        return read_results(folder.above.name, folder.label)
    if folder.read("trial.json") is not None:
        experiment = folder.above.above
        return _trial(experiment.above.name, experiment.label, folder.label)
    if folder.local is not None and is_metrics(folder.local):
        return read_csv(folder.local)
    if folder.read("manifest.json") is not None:
        raise ConfigError(f"{source} is a policy, which holds no metrics: name the run that made it.")
    if folder.names():
        raise ConfigError(f"{source} holds neither runs nor metrics: name an experiment, a trial, CSV files or runs:/ID.")
    find_experiment(storage, source)  # says which is the nearest
    raise AssertionError


def _trial(storage: str, name: str, trial: str) -> Results:
    known = [one.identity for one in find_experiment(storage, name).trials()]
    if trial not in known:
        raise ConfigError(f"The experiment {name!r} in {storage} has no trial {trial!r}{did_you_mean(trial, known)}")
    return _renamed(read_results(storage, name, trial), trial)
