"""Metrics out of CSV files, one for each metric, with lines `epoch,step,value`: d3ray's and d3rlpy's folders.

    RUN/params.json, RUN/train/critic_loss.csv, RUN/evaluation/return.csv     a `CSVLogger`'s, or a trial's with `loggers: [csv]`
    RUN/params.json, RUN/critic_loss.csv, RUN/environment.csv                 d3rlpy's

A folder may be one run, or hold several at any depth: runs of equal settings are seeds of one configuration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...data.errors import DataError
from ...data.storage.files import storage_errors
from ...data.storage.json_text import parse_json
from ..record.results import ConfigurationResult, Results, SeedResult
from ..storage.outbox import lines_of_points
from .configurations import free_seed

PARAMS = "params.json"


@dataclass(frozen=True)
class _Params:
    """A run's `params.json`; empty if there is none."""

    algorithm: str
    settings: dict[str, Any]
    seed: int | None
    n_steps: int | None
    dataset: str


def is_metrics(path: Path) -> bool:
    """Return True for a CSV file or a folder of runs."""
    return (path.is_file() and path.suffix == ".csv") or (path.is_dir() and any(_runs(path)))


def read_csv(path: Path) -> Results:
    """The runs of a CSV file or of a folder of them.

    Raises DataError: a file's lines are no `epoch,step,value`, or there is none.
    """
    if path.is_file():
        run = next((above for above in list(path.parents)[:3] if (above / PARAMS).is_file()), path.parent)
        found = {run: [path]}
    else:
        found = {run: sorted(_files(run)) for run in _runs(path)}
    if not found:
        raise DataError(f"{path} holds no metrics: there is no file whose lines are `epoch,step,value`.")
    name = (next(iter(found)) if path.is_file() else path).resolve().name
    alike: dict[str, list[tuple[_Params, Path, list[Path]]]] = {}
    for run, files in found.items():
        about = _read_params(run)
        key = json.dumps([about.algorithm, about.settings, about.dataset], sort_keys=True)
        alike.setdefault(key, []).append((about, run, files))
    return Results(
        name=name,
        state="FINISHED",
        data={"name": next((about.dataset for runs in alike.values() for about, _, _ in runs), "")},
        configurations=[_configuration(name, runs) for runs in alike.values()],
    )


def read_file(file: Path) -> list[tuple[int, float]]:
    """Step and value of each line. What a kill cut short at the end is left out. Raises DataError, StorageError."""
    with storage_errors("read", file):
        text = file.read_text(encoding="utf-8", errors="replace")
    points: list[tuple[int, float]] = []
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            _, step, value = line.split(",")
            points.append((int(float(step)), float(value)))
        except ValueError:
            if number == len(lines) and not line.endswith("\n") and points:
                break
            shown = line.strip()[:60]
            raise DataError(f"{file} holds no metric: line {number} is {shown!r}, and lines are `epoch,step,value`.") from None
    if not points:
        raise DataError(f"{file} holds no metric: it is empty.")
    return points


def _configuration(name: str, runs: list[tuple[_Params, Path, list[Path]]]) -> ConfigurationResult:
    seeds: dict[int, SeedResult] = {}
    for about, run, files in runs:
        seed = free_seed(about.seed, seeds)
        points = {file.relative_to(run).with_suffix("").as_posix(): read_file(file) for file in files}
        last = max(step for found in points.values() for step, _ in found)
        status = "FINISHED" if about.n_steps is not None and last >= about.n_steps else "RUNNING"  # files do not say how it ended
        found = SeedResult(seed=seed, status=status, step=last, n_steps=about.n_steps or last)
        seeds[seed] = found.reading(partial(lines_of_points, points))
    about = runs[0][0]
    return ConfigurationResult(
        experiment=name,
        algorithm=about.algorithm or name,
        settings=about.settings,
        n_steps=max(one.n_steps for one in seeds.values()),
        seeds=[seeds[seed] for seed in sorted(seeds)],
        data={"name": about.dataset or None},
    )


def _runs(folder: Path) -> Iterator[Path]:
    """The folders of runs, that is, those with `params.json`; without any, the folder itself where it holds CSV files."""
    marked = sorted(file.parent for file in folder.rglob(PARAMS))
    found = [run for run in marked if any(_files(run))]
    if not found and any(folder.glob("*.csv")):
        found = [folder]
    yield from found


def _files(run: Path) -> Iterator[Path]:
    """The CSV files of a run, but not those of runs that have a folder of their own in it."""
    for path in run.iterdir():
        if path.suffix == ".csv" and path.is_file():
            yield path
        elif path.is_dir() and not (path / PARAMS).exists():
            yield from _files(path)


def _read_params(run: Path) -> _Params:
    try:
        about = parse_json((run / PARAMS).read_bytes())
    except (OSError, ValueError):
        about = {}
    about = about if isinstance(about, dict) else {}
    if isinstance(whole := about.get("configuration"), dict):  # of a trial
        return _Params(
            str(about.get("algorithm") or ""), whole, about.get("seed"), whole.get("n_steps"), str(about.get("dataset") or "")
        )
    config = about.get("config")
    if isinstance(config, dict) and isinstance(config.get("params"), dict):  # d3rlpy 2's
        return _Params(str(config.get("type") or ""), config["params"], None, None, "")
    if isinstance(config, dict):
        algorithm, data = str(about.get("algorithm") or ""), (about.get("data") or {}).get("name")
        return _Params(algorithm, {"algorithm": config}, about.get("seed"), None, str(data or ""))
    algorithm = str(about.pop("algorithm", ""))  # d3rlpy 1's has its settings at the top
    return _Params(algorithm, about, None, None, "")
