"""Runs a benchmark: the cells of a suite, each over its seeds, on the one driver that `train` and `sweep` use too.

What cannot be had of a suite's datasets is named, in the experiment's folder and on its run, and the rest goes on; `--resume` tries
it again. A resumed benchmark may have more datasets and algorithms than it was begun with: what is there stays as it is.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...data.errors import ConfigError, D3rayError, DataError
from ..driver.proposer import Listed
from ..driver.work import Work
from ..experiment.checks import check_data, check_place, describe_dataset
from ..experiment.run import carry_out
from ..places import Data
from ..record.results import Report, Results
from ..results.progress import OnProgress
from ..settings.config import asked
from ..storage.experiments import Experiment
from ..storage.resuming import check_name, check_settings
from ..storage.trials import Trial
from .data import Obtained, obtain
from .suite import Cell, SuiteConfig


@dataclass(frozen=True)
class BenchmarkResult:
    experiment: Results
    missing: dict[str, str]  # datasets that could not be had, and why
    report: Report | None  # None where it could not be written
    unwritten: str = ""  # why it could not


def run_benchmark(
    config: SuiteConfig,
    *,
    resume: bool = False,
    replace: bool = False,
    trial: str | None = None,
    on_progress: OnProgress | None = None,
) -> BenchmarkResult:
    """Trains every cell that is not trained yet, of those whose data can be had, and writes the report.

    Arguments as `run_experiment`'s. Raises ConfigError, DataError, StorageError: before any work, for what cannot be used, reached
    or seen, and where none of the datasets can be had; KeyboardInterrupt: after Ctrl-C; what was committed is kept.
    """
    from .report import write

    check_name(config.experiment)  # before anything is downloaded or made
    data = obtain(config)
    result = carry_out(benchmark_work(config, data), resume=resume, replace=replace, trial=trial, on_progress=on_progress)
    try:
        return BenchmarkResult(result, data.missing, write(config.storage_place, config.experiment))
    except D3rayError as error:  # MLflow is away, or the disk is full: what was trained is there all the same
        return BenchmarkResult(result, data.missing, None, str(error))


def benchmark_work(config: SuiteConfig, data: Obtained) -> Work:
    """Prepare a benchmark's work. Raises as `run_benchmark` before any work."""
    cells = data.cells(config)
    check_place(cells[0].config)
    for cell in cells:
        _check(cell, data.found[cell.dataset])
    places = {cell.dataset: cell.config.dataset_place for cell in cells}
    datasets = {label: describe_dataset(data.found[label], place) for label, place in places.items()}
    return Work(
        config=cells[0].config,  # what is said of how trials run is the same in all of them
        configuration=config.protocol(),
        datasets={places[label]: about for label, about in datasets.items()},
        proposer=lambda experiment, spent, groups: Listed(
            cell_trials(experiment, config, cells, datasets, groups), lambda: spent.is_over
        ),
        limits=config.budget,
        data=_about(config),
        tags={
            "d3ray.suite": config.suite_name,
            "d3ray.suite_definition": config.definition(),
            "d3ray.missing": json.dumps(data.missing),
        },
        asked=asked("benchmark", config, SuiteConfig),
    )


def _check(cell: Cell, data: Data) -> None:
    """Raises ConfigError or DataError, naming the cell, where the algorithm cannot learn from the data or nothing can score it."""
    try:
        check_data(cell.config, data)
    except (ConfigError, DataError) as error:
        raise type(error)(f"{cell.label} on {cell.dataset}: {error}") from None


def cell_trials(
    experiment: Experiment,
    config: SuiteConfig,
    cells: Sequence[Cell],
    datasets: Mapping[str, Mapping[str, Any]],
    groups: Sequence[Sequence[int]] | None = None,
) -> list[Trial]:
    """The trials of cells, created where they are not there, the first seeds of all cells first.

    `datasets` are described by label; `groups` are the seeds of each trial of a cell, None: as the suite says. Raises ConfigError:
    a cell was begun with other settings or other data, or the suite lacks one that was begun.
    """
    known: dict[tuple[str, str], Trial] = {}
    for trial in experiment.trials():
        choice = trial.choice or {}
        known.setdefault((str(choice.get("dataset")), str(choice.get("algorithm"))), trial)
    named = {(data.label, entry.label) for data in config.datasets for entry in config.algorithms}
    if lost := next((key for key in known if key not in named), None):
        raise ConfigError(
            f"The experiment {experiment.name!r} was begun with {lost[1]} on {lost[0]} too: name it as well, or say another name."
        )
    free = itertools.count(max((trial.number or 0 for trial in known.values()), default=-1) + 1)
    numbered: list[tuple[int, Cell]] = []
    for cell in cells:
        begun = known.get((cell.dataset, cell.label))
        if begun is not None:
            where = f"{cell.label} on {cell.dataset}"
            check_settings(experiment.name, {where: begun.configuration}, {where: cell.config.configuration()})
            if begun.dataset["fingerprint"] != datasets[cell.dataset]["fingerprint"]:
                raise ConfigError(
                    f"The experiment {experiment.name!r} was begun with other data: {cell.dataset!r} had another fingerprint than "
                    "it has now."
                )
        numbered.append((next(free) if begun is None or begun.number is None else begun.number, cell))
    each = config.groups() if groups is None else groups
    return [_trial(experiment, config, number, cell, seeds, datasets) for seeds in each for number, cell in numbered]


def _trial(
    experiment: Experiment,
    config: SuiteConfig,
    number: int,
    cell: Cell,
    seeds: Sequence[int],
    datasets: Mapping[str, Mapping[str, Any]],
) -> Trial:
    return experiment.trial(
        cell.config.configuration(),
        seeds,
        choice={"dataset": cell.dataset, "algorithm": cell.label},
        dataset=datasets[cell.dataset],
        number=number,
        title=f"{experiment.name} {cell.label} on {cell.dataset}",
        tags={"d3ray.suite": config.suite_name, "d3ray.cell": cell.label, "d3ray.dataset": cell.dataset},
    )


def _about(config: SuiteConfig) -> dict[str, Any]:
    """Describe the suite as the experiment's data. Each cell names its own dataset, and more may be added."""
    name = f"suite {config.suite_name}"
    empty: dict[str, Any] = dict.fromkeys(("n_transitions", "n_episodes", "environment", "return_mean", "return_std"))
    return {
        "name": name,
        "fingerprint": hashlib.sha256(name.encode()).hexdigest(),
        "source": config.suite_name,
        "schema": {},
        **empty,
    }
