"""The gate: whether a benchmark's numbers lie in the bands of a file, and files of bands from a run that is trusted."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...data.dataset import Dataset
from ...data.errors import ConfigError, did_you_mean
from ...data.storage.files import storage_errors
from ..surroundings import surroundings
from ..words import count
from ..yaml_text import read_yaml, to_text
from .bands import METRICS, Bands, Recorded
from .run import BenchmarkResult
from .suite import SuiteConfig, is_file

BANDS = Path(__file__).parent / "suites" / "bands"
SEEDS = 10  # of a run that is held against bands
_EPISODES = 200  # of random actions
_OF_A_RUN = ("seeds", "seeds_per_trial", "source")  # of a suite's definition; bands hold for other seeds too


def read_bands(name: str) -> Bands:
    """The bands of a file, or those of that name which come with d3ray.

    Raises ConfigError: there are none; the nearest is given.
    """
    known = sorted(file.stem for file in BANDS.glob("*.yaml"))
    if not is_file(name) and name not in known:
        raise ConfigError(f"There are no bands {name!r}{did_you_mean(name, known)}")
    document, _ = read_yaml(name if is_file(name) else BANDS / f"{name}.yaml")
    return Bands.checked(document, title=f"the bands {name}")


def protocol(config: SuiteConfig) -> dict[str, Any]:
    """Return, as JSON, what a run must share with the bands' run. Differences in data show in a run's numbers."""
    return {name: value for name, value in config.described().items() if name not in _OF_A_RUN}


def values(ran: BenchmarkResult) -> dict[str, dict[str, dict[str, list[float]]]]:
    """By dataset, algorithm and metric, the last value of each seed that finished."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for cell in ran.experiment.configurations:
        metrics = found.setdefault(cell.choice["dataset"], {}).setdefault(cell.choice["algorithm"], {})
        for seed, name in itertools.product(cell.seeds, METRICS):
            if seed.status == "FINISHED" and name in seed.metrics:
                metrics.setdefault(name, []).append(seed.metrics[name])
    return found


def chance(config: SuiteConfig, datasets: Iterable[str]) -> dict[str, float]:
    """Measure the mean return of uniformly random actions by dataset, leaving out datasets without an environment to play."""
    from ...algos.environments.collect import collect
    from ..settings.evaluation import environment_to_play

    evaluations = {cell.dataset: (cell.config.evaluation, cell.config.dataset_place) for cell in config.cells()}
    found: dict[str, float] = {}
    for label in datasets:
        evaluation, place = evaluations[label]
        environment = None if evaluation is None else environment_to_play(evaluation, Dataset.open(place))
        if environment is not None:
            found[label] = float(collect(environment, n_episodes=_EPISODES).episodes.returns.mean())
    return found


def recorded(config: SuiteConfig) -> Recorded:
    about = surroundings()
    parts = [about["processor"], count(about["cpus"], "CPU"), *about["gpus"]]
    versions = {str(name): str(number) for name, number in about["versions"].items()}
    return Recorded(
        seeds=config.seeds, date=f"{datetime.now(UTC):%Y-%m-%d}", machine=", ".join(filter(None, parts)), versions=versions
    )


def write_bands(ran: BenchmarkResult, config: SuiteConfig, path: str) -> Bands:
    """Bands around the numbers of a run, for runs of ten seeds (or as many as it has), into a file.

    Raises ConfigError, StorageError.
    """
    measured, n_seeds = values(ran), min(len(config.seeds), SEEDS)
    bands = Bands.around(measured, protocol(config), n_seeds, chance=chance(config, measured), recorded=recorded(config))
    with storage_errors("written", path):
        Path(path).write_text("\n".join(_lines(bands)) + "\n", encoding="utf-8")
    return bands


def _lines(bands: Bands) -> Iterator[str]:
    """YAML, a line a band."""
    said = bands.model_dump(mode="json")
    yield from (f"{name}: {to_text(said[name])}" for name in ("protocol", "level", "seeds", "recorded"))
    yield "cells:"
    for dataset, of_data in said["cells"].items():
        yield f"  {to_text(dataset)}:"
        for label, of_cell in of_data.items():
            yield f"    {to_text(label)}:"
            yield from (f"      {to_text(metric)}: {to_text(band)}" for metric, band in of_cell.items())
