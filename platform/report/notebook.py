"""`d3ray.plot`: curves of what was trained, here or as an experiment, as a picture that a notebook shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from ...algos.learning.estimator import Estimator
from ...algos.learning.history import History
from ...algos.stack import Stack
from ...data.errors import ConfigError
from ..record.results import Results
from ..results.histories import read_histories
from .plot import Plot, plot_of
from .sources import read_sources
from .tasks import shown


@runtime_checkable
class Named(Protocol):
    """An experiment in a program's hand, as `d3ray.experiments.open` gives it."""

    @property
    def name(self) -> str: ...

    @property
    def storage(self) -> str: ...


def plot(
    *runs: Any,
    metrics: str | Sequence[str] | None = None,
    window: int = 1,
    storage: str = "./d3ray_results",
    tracking: str | None = None,
) -> Plot:
    """Curves over gradient steps, with means and bands over seeds: shown as the last line of a notebook's cell, or `.save`d.

    Args:
        *runs: What is drawn together. Fitted algorithms, stacks and their `history_`, of which those with equal settings and data
            are seeds of one line; experiments of `d3ray.experiments`; what `d3ray plot` takes as text: an experiment's name, CSV
            files, `runs:/ID`. A mapping gives any of these, or lists of them, names of your own.
        metrics: What is drawn, or "all"; None: the return or what was measured in its place, else the losses.
        window: Every point is the mean of so many, itself and those before it.
        storage: Folder or URI of results, for experiments that are named by a text.
        tracking: MLflow's tracking URI; None: MLFLOW_TRACKING_URI, else the database in `storage`.

    Raises:
        ConfigError: something is nothing that has metrics, or measured none of that name; the nearest is named.
        DataError: nothing has been measured yet.
        StorageError: something cannot be read.
    """
    if not runs or window < 1:
        raise ConfigError("Say what to plot." if not runs else f"window is {window}; it counts points and must be positive.")
    found: list[Results] = []
    unnamed: list[Any] = []
    for run in runs:
        if isinstance(run, Mapping):
            for name, one in cast("Mapping[str, Any]", run).items():
                several = list(one) if isinstance(one, list | tuple) else [one]
                found += [_called(each, str(name)) for each in _read(several, storage, tracking, str(name))]
        else:
            unnamed.append(run)
    found = [*_read(unnamed, storage, tracking), *found]
    return plot_of([shown(one) for one in found], [metrics] if isinstance(metrics, str) else metrics, window)


def _read(runs: Sequence[Any], storage: str, tracking: str | None, name: str | None = None) -> list[Results]:
    """The results of some runs; histories among them are one."""
    histories, texts = list[History](), list[str]()
    found: list[Results] = []
    for run in runs:
        if isinstance(run, Estimator | Stack):
            histories.append(run.history_)
        elif isinstance(run, History):
            histories.append(run)
        elif isinstance(run, str | Path):
            texts.append(str(run))
        elif isinstance(run, Named):
            found += read_sources([run.name], run.storage, tracking)
        else:
            raise ConfigError(f"{run!r} has no metrics: plot algorithms, histories, experiments, or names of them.")
    made = [read_histories(histories, name)] if histories else []
    return [*made, *found, *(read_sources(texts, storage, tracking) if texts else [])]


def _called(results: Results, name: str) -> Results:
    """Results under a name of the user's."""
    renamed = [one.model_copy(update={"experiment": name, "algorithm": name}) for one in results.configurations]
    return results.model_copy(update={"name": name, "configurations": renamed})
