"""A benchmark as it is read from the tracking server. No folder is read.

A benchmark is a parent run with the tag `d3ray.suite`; a child run is one seed of a *cell*, an algorithm entry on a dataset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...algos.environments.ogbench import is_ogbench
from ...data.errors import ConfigError, did_you_mean
from ...data.uris import without_password
from ..record.results import NORMALIZED, RETURN, SUCCESS, ConfigurationResult
from ..results.configurations import id_of
from ..storage.outbox import Line
from ..tracking.measured import data_of, json_tag, lines_of, seed_run, status_of
from ..tracking.runs import Tracking, every_run
from .results import Benchmark, Cell, Origin, Protocol, labels_of, task_of


def find_benchmark(tracking: Tracking, name: str, folder: str = "") -> Any:
    """The parent run of a benchmark, named by its experiment (that in `folder`, else the newest), or its suite for the newest.

    Raises ConfigError: there is none, and the nearest is named; ServerAwayError: MLflow does not answer.
    """
    with tracking.answers():
        runs = _search(tracking, "tags.`d3ray.kind` = 'experiment' and tags.`d3ray.suite` LIKE '%'")
    named = [run for run in runs if run.data.tags.get("d3ray.experiment") == name]
    here = [run for run in named if run.data.tags.get("d3ray.folder") == folder]
    if found := here or named or [run for run in runs if run.data.tags["d3ray.suite"] == name]:
        return found[0]
    known = [text for run in runs for tag in ("d3ray.suite", "d3ray.experiment") if (text := run.data.tags.get(tag))]
    near = did_you_mean(name, list(dict.fromkeys(known))) if known else "; no benchmark has been run yet."
    raise ConfigError(f"There is no benchmark {name!r} in {without_password(tracking.uri)}{near}")


def read_benchmark(tracking: Tracking, parent: Any) -> Benchmark:
    """Read a benchmark from MLflow, given its parent run. Raises ServerAwayError."""
    tags, about = parent.data.tags, json_tag(parent.data.tags.get("d3ray.suite_definition"))
    with tracking.answers():
        children = _search(tracking, f"tags.`mlflow.parentRunId` = '{parent.info.run_id}' and tags.`d3ray.kind` = 'seed'")
        lines = {run.info.run_id: lines_of(tracking.client, run.info.run_id, _read_of(run)) for run in children}
    cells = _cells(children, lines)
    datasets = list(dict.fromkeys([*about.get("datasets", ()), *(cell.dataset for cell in cells)]))
    labels = list(dict.fromkeys([*labels_of(about), *(cell.label for cell in cells)]))
    return Benchmark(
        suite=tags["d3ray.suite"],
        experiment=tags.get("d3ray.experiment", ""),
        status=status_of(parent),
        reason=tags.get("d3ray.reason", ""),
        run_id=parent.info.run_id,
        place=tracking.place,
        about=about,
        datasets=tuple(datasets),
        labels=tuple(labels),
        seeds=tuple(about.get("seeds") or sorted({run.seed for cell in cells for run in cell.runs.seeds})),
        missing=json_tag(tags.get("d3ray.missing")),
        cells=tuple(sorted(cells, key=lambda cell: (datasets.index(cell.dataset), labels.index(cell.label)))),
    )


def _read_of(run: Any) -> list[str]:
    """The metrics of a run that are read: its scores, and the shares of solved episodes by task."""
    return [RETURN, NORMALIZED, SUCCESS, *(name for name in run.data.metrics if task_of(name) is not None)]


def _search(tracking: Tracking, query: str) -> list[Any]:
    return every_run(tracking.client, tracking.experiment_id, query, order_by=["attributes.start_time DESC"])


def _cells(children: Sequence[Any], lines: Mapping[str, list[Line]]) -> list[Cell]:
    """Cells of runs, the newest first. What differs from the newest in protocol or data is a cell of its own, and labelled so."""
    found: dict[tuple[str, str], dict[tuple[Protocol, str], dict[int, Any]]] = {}
    for run in children:
        tags = run.data.tags
        place = tags["d3ray.dataset"], tags.get("d3ray.cell") or tags.get("d3ray.algorithm", "?")
        kind = _protocol(run.data.params), tags.get("d3ray.fingerprint", "")
        found.setdefault(place, {}).setdefault(kind, {}).setdefault(int(tags["d3ray.seed"]), run)
    cells: list[Cell] = []
    for (dataset, label), kinds in found.items():
        ((newest, data), _), *_others = kinds.items()
        for (protocol, fingerprint), runs in kinds.items():
            differs = [str(protocol)] * (protocol != newest) + [f"data {fingerprint[:8]}"] * (fingerprint != data)
            made = _cell(dataset, " · ".join([label, *differs]), protocol, fingerprint, runs, lines)
            cells.append(replace(made, is_current=not differs))
    return cells


def _cell(
    dataset: str, label: str, protocol: Protocol, fingerprint: str, runs: Mapping[int, Any], lines: Mapping[str, list[Line]]
) -> Cell:
    first = runs[min(runs)]
    tags, params = first.data.tags, first.data.params
    data = data_of(first)
    where = params.get("evaluation.environment.id") or params.get("evaluation.environment")
    environment = id_of(where if where and where != "null" else data.get("environment"))
    read = {seed: lines[run.info.run_id] for seed, run in sorted(runs.items())}
    if environment is not None and is_ogbench(environment):
        read = {seed: list(map(_by_success, found)) for seed, found in read.items()}
    seeds = [seed_run(runs[seed], seed, protocol.n_steps, found) for seed, found in read.items()]
    size = f"{data['n_transitions']:,} transitions in {data['n_episodes']:,} episodes" if data.get("n_transitions") else ""
    configuration = ConfigurationResult(
        experiment=tags.get("d3ray.experiment", ""),
        algorithm=tags.get("d3ray.algorithm", "?"),
        settings=dict(params),
        n_steps=protocol.n_steps,
        seeds=seeds,
        data={"name": dataset, "fingerprint": fingerprint},
        environment=environment,
        label=label,
    )
    origins = {seed: _origin(run.data.tags) for seed, run in sorted(runs.items())}
    mean = data.get("return_mean")
    data_return = float(mean) if isinstance(mean, int | float) and np.isfinite(mean) else None
    return Cell(dataset, label, protocol, fingerprint, size, configuration, params, origins, data_return=data_return)


def _by_success(line: Line) -> Line:
    """Put the share of episodes that were solved, in percent, in the place of a normalised return: OGBench compares by it."""
    share = line.metrics.get(SUCCESS)
    return line if share is None else line._replace(metrics={**line.metrics, NORMALIZED: 100 * share})


def _origin(tags: Mapping[str, str]) -> Origin:
    commit = tags.get("mlflow.source.git.commit", "")[:12]
    code = f"{commit}, with changes" if commit and tags.get("d3ray.git_dirty") == "true" else commit
    node = ": ".join(filter(None, [tags.get("d3ray.node"), tags.get("d3ray.node_machine")]))
    return Origin(tags.get("d3ray.versions", ""), tags.get("d3ray.machine", ""), node, code)


def _protocol(params: Mapping[str, str]) -> Protocol:
    def whole(name: str) -> int:
        text = params.get(name, "null")
        return int(text) if text.isdecimal() else 0

    return Protocol(whole("n_steps"), whole("evaluation.episodes"), whole("evaluation.every") or whole("n_steps_per_epoch"))
