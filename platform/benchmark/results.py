"""A benchmark as the tracking server has it: what each algorithm came to on each dataset. No folder is read.

A benchmark is a parent run with the tag `d3ray.suite`; a child run is one seed of a *cell*, an algorithm entry on a dataset.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ...algos.environments.scores import Reference, reference_in
from ...data.errors import ConfigError, did_you_mean
from ..experiment.results import NORMALIZED, RETURN, Configuration, Score, SeedRun
from ..storage.experiments import Status
from ..storage.outbox import Line
from ..tracking.runs import Tracking
from ..uris import without_password
from .suite import fits

_INFINITE = sys.float_info.max  # what MLflow makes of infinity
_PAGE = 1000  # runs in a request


@dataclass(frozen=True, order=True)
class Protocol:
    """How cells were trained and scored; only cells of one protocol may be averaged."""

    n_steps: int
    episodes: int  # of an evaluation
    every: int  # gradient steps between evaluations

    def __str__(self) -> str:
        episodes = f"{self.episodes} episode{'s' * (self.episodes != 1)}"
        return f"{self.n_steps:,} gradient steps, {episodes} every {self.every:,} steps"


@dataclass(frozen=True)
class Origin:
    """On what a run ran, as it says itself; empty where it does not."""

    versions: str
    machine: str
    commit: str


@dataclass(frozen=True, eq=False)
class Cell:
    """An algorithm entry on a dataset, with the seeds that have a run."""

    dataset: str
    label: str
    protocol: Protocol
    fingerprint: str  # of the data
    size: str  # of the data, in words; empty where it is not known
    runs: Configuration
    settings: Mapping[str, str]  # MLflow's parameters
    origins: Mapping[int, Origin]  # by seed
    is_current: bool = True  # whether its protocol and data are the newest of that label on that dataset

    @cached_property
    def reference(self) -> Reference | None:
        """What its normalised returns are relative to; None where they were not measured, or nobody knows."""
        found = reference_in(self.runs.environment, self.dataset)
        for run in (run for run in self.runs.seeds if {RETURN, NORMALIZED} <= set(run.curves)):
            raw, normalized = run.curves[RETURN].values[-1], run.curves[NORMALIZED].values[-1]
            if found is not None and np.isclose(found.score(raw), normalized, rtol=1e-3, atol=1e-2):
                return found
        return None

    @cached_property
    def is_normalized(self) -> bool:
        """Whether its scores are normalised returns."""
        return any(NORMALIZED in run.curves for run in self.runs.seeds)

    @property
    def has_scores(self) -> bool:
        """Whether any seed was evaluated."""
        return any(self.metric in run.curves for run in self.runs.seeds)

    @property
    def unit(self) -> str:
        """What its scores are called."""
        if not self.is_normalized:
            return "return"
        return self.reference.label if self.reference else "normalised return"

    @property
    def metric(self) -> str:
        """Of its scores."""
        return NORMALIZED if self.is_normalized else RETURN

    @property
    def score(self) -> Score:
        """The last evaluation, over the seeds that finished; while none has, what all have reached."""
        return self.runs.score(self.metric)

    @property
    def final(self) -> dict[int, float]:
        """The last evaluation of each seed that finished with a finite one."""
        finished = {run.seed for run in self.runs.seeds if run.status == "FINISHED"}
        score = self.score
        return {seed: value for seed, value in score.values.items() if seed in finished} if score.is_final else {}

    @property
    def best(self) -> dict[int, float]:
        """The best evaluation of each of those seeds."""
        found = {run.seed: run.best(self.metric) for run in self.runs.seeds}
        return {seed: best[0] for seed in self.final if (best := found[seed]) is not None}

    @property
    def evaluations(self) -> dict[int, np.ndarray]:
        """Every evaluation of each of those seeds of which all are finite."""
        found = {run.seed: run.curves[self.metric].values for run in self.runs.seeds if run.seed in self.final}
        return {seed: values for seed, values in found.items() if np.isfinite(values).all()}

    def count(self, *statuses: Status) -> int:
        """How many of its seeds have one of these statuses."""
        return sum(run.status in statuses for run in self.runs.seeds)


@dataclass(frozen=True, eq=False)
class Group:
    """Cells that may stand in one table, and be averaged over its datasets: a label has one protocol there, and all one unit."""

    unit: str
    cells: tuple[Cell, ...]

    @property
    def is_normalized(self) -> bool:
        """Whether its scores are normalised, and so comparable over datasets."""
        return self.cells[0].is_normalized

    @property
    def datasets(self) -> list[str]:
        """In order."""
        return list(dict.fromkeys(cell.dataset for cell in self.cells))

    @property
    def protocol(self) -> str:
        """The protocol in words, with the algorithms that have another."""
        by_label = {cell.label: cell.protocol for cell in self.cells}
        usual = Counter(by_label.values()).most_common(1)[0][0]
        others = [f"{label}: {protocol}" for label, protocol in by_label.items() if protocol != usual]
        return "; ".join([str(usual), *others])


def grouped(cells: Iterable[Cell], *, by_unit: bool = True) -> list[Group]:
    """Cells with an evaluation, dataset by dataset: each goes to the first group in which no label has another protocol.

    Args:
        cells: In order.
        by_unit: Whether scores in different units are kept apart; what only compares runs on a dataset need not.
    """
    by_dataset: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.has_scores:
            by_dataset.setdefault(cell.dataset, []).append(cell)
    found: list[tuple[str, dict[str, Protocol], list[Cell]]] = []
    for members in by_dataset.values():
        unit, protocols = members[0].unit if by_unit else "", {cell.label: cell.protocol for cell in members}
        for other, known, inside in found:
            if other == unit and all(known.get(label, protocol) == protocol for label, protocol in protocols.items()):
                known.update(protocols)
                inside.extend(members)
                break
        else:
            found.append((unit, protocols, list(members)))
    return [Group(unit, tuple(group)) for unit, _, group in found]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """What a suite came to in one experiment."""

    suite: str
    experiment: str
    status: Status
    reason: str
    run_id: str
    place: Mapping[str, str]  # `uri` and `experiment_id` of MLflow
    about: Mapping[str, Any]  # the suite's definition, as it was resolved; empty where it is not known
    datasets: tuple[str, ...]  # all that the suite names, in its order
    labels: tuple[str, ...]
    seeds: tuple[int, ...]
    missing: Mapping[str, str]  # datasets that could not be had, and why
    cells: tuple[Cell, ...]  # in the order of datasets and labels

    def cell(self, dataset: str, label: str) -> Cell | None:
        """A cell; None where no seed of it has a run."""
        return next((cell for cell in self.cells if (cell.dataset, cell.label) == (dataset, label)), None)

    def awaits(self, dataset: str, label: str) -> bool:
        """Whether the suite asks for a cell."""
        only = _labels(self.about).get(label, "")
        return dataset in self.about.get("datasets", ()) and (only is None or fits(dataset, only))

    @property
    def n_runs(self) -> int:
        """Runs that the suite asks for, and others that there are."""
        asked = sum(self.awaits(dataset, label) for dataset in self.datasets for label in self.labels) * len(self.seeds)
        of_others = sum(len(set(cell.origins) - set(self.seeds)) for cell in self.cells if self.awaits(cell.dataset, cell.label))
        return asked + of_others + sum(len(cell.origins) for cell in self.cells if not self.awaits(cell.dataset, cell.label))

    def count(self, *statuses: Status) -> int:
        """How many runs have one of these statuses."""
        return sum(cell.count(*statuses) for cell in self.cells)


# ---- reading


def find_benchmark(tracking: Tracking, name: str, folder: str = "") -> Any:
    """The parent run of a benchmark.

    Args:
        tracking: Where to look.
        name: An experiment's, else a suite's, whose newest benchmark it is.
        folder: Of several experiments of that name the one that lies here is meant, else the newest.

    Raises:
        ConfigError: there is no benchmark of that name; the nearest is named.
        ServerAwayError: MLflow does not answer.
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
    """What MLflow knows of a benchmark, given its parent run. Raises ServerAwayError."""
    tags, about = parent.data.tags, _json(parent.data.tags.get("d3ray.suite_definition"))
    with tracking.answers():
        children = _search(tracking, f"tags.`mlflow.parentRunId` = '{parent.info.run_id}' and tags.`d3ray.kind` = 'seed'")
        lines = {run.info.run_id: _lines(tracking, run.info.run_id) for run in children}
    cells = _cells(children, lines)
    datasets = list(dict.fromkeys([*about.get("datasets", ()), *(cell.dataset for cell in cells)]))
    labels = list(dict.fromkeys([*_labels(about), *(cell.label for cell in cells)]))
    return Benchmark(
        suite=tags["d3ray.suite"],
        experiment=tags.get("d3ray.experiment", ""),
        status=_status(parent),
        reason=tags.get("d3ray.reason", ""),
        run_id=parent.info.run_id,
        place=tracking.place,
        about=about,
        datasets=tuple(datasets),
        labels=tuple(labels),
        seeds=tuple(about.get("seeds") or sorted({run.seed for cell in cells for run in cell.runs.seeds})),
        missing=_json(tags.get("d3ray.missing")),
        cells=tuple(sorted(cells, key=lambda cell: (datasets.index(cell.dataset), labels.index(cell.label)))),
    )


def _labels(about: Mapping[str, Any]) -> dict[str, str | None]:
    """The algorithms of a suite's definition, which may have their settings too, and what each is only for."""
    named = [one if isinstance(one, Mapping) else {"label": one} for one in about.get("algorithms", ())]
    return {one["label"]: one.get("only") for one in named}


def _search(tracking: Tracking, query: str) -> list[Any]:
    """Runs, the newest first."""
    found: list[Any] = []
    token = None
    while True:
        page = tracking.client.search_runs(
            [tracking.experiment_id], query, max_results=_PAGE, order_by=["attributes.start_time DESC"], page_token=token
        )
        found += page
        if not (token := page.token):
            return found


def _lines(tracking: Tracking, run_id: str) -> list[Line]:
    """What a run's evaluations measured, by step; of several values at a step the one that was logged first."""
    points: dict[int, dict[str, float]] = {}
    for name in (RETURN, NORMALIZED):
        for point in sorted(tracking.client.get_metric_history(run_id, name), key=lambda one: (one.step, one.timestamp)):
            value = point.value if abs(point.value) < _INFINITE else float(np.copysign(np.inf, point.value))
            points.setdefault(point.step, {}).setdefault(name, value)
    return [Line(step, 0, metrics) for step, metrics in sorted(points.items())]


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
    data = _dataset(first)
    where = params.get("evaluation.environment.id") or params.get("evaluation.environment")
    environment = where if where and where != "null" else data.get("environment")
    seeds = tuple(_seed(seed, runs[seed], protocol, lines[runs[seed].info.run_id]) for seed in sorted(runs))
    size = f"{data['n_transitions']:,} transitions in {data['n_episodes']:,} episodes" if data.get("n_transitions") else ""
    origins = {
        seed: Origin(*(run.data.tags.get(tag, "") for tag in ("d3ray.versions", "d3ray.machine", "mlflow.source.git.commit")))
        for seed, run in sorted(runs.items())
    }
    configuration = Configuration(
        experiment=tags.get("d3ray.experiment", ""),
        algorithm=tags.get("d3ray.algorithm", "?"),
        settings=dict(params),
        n_steps=protocol.n_steps,
        seeds=seeds,
        dataset={"name": dataset, "fingerprint": fingerprint},
        environment=environment.get("id") if isinstance(environment, Mapping) else environment,
        label=label,
    )
    return Cell(dataset, label, protocol, fingerprint, size, configuration, params, origins)


def _seed(seed: int, run: Any, protocol: Protocol, lines: Sequence[Line]) -> SeedRun:
    return SeedRun(
        seed=seed,
        status=_status(run),
        reason=run.data.tags.get("d3ray.reason", ""),
        step=lines[-1].step if lines else 0,
        n_steps=protocol.n_steps,
        run_id=run.info.run_id,
        seeds_together=1,
        last_sign=None,
        measured=partial(iter, lines),
    )


def _protocol(params: Mapping[str, str]) -> Protocol:
    def whole(name: str) -> int:
        text = params.get(name, "null")
        return int(text) if text.isdecimal() else 0

    return Protocol(whole("n_steps"), whole("evaluation.episodes"), whole("evaluation.every") or whole("n_steps_per_epoch"))


def _status(run: Any) -> Status:
    return run.info.status if run.info.status in ("FINISHED", "FAILED", "KILLED") else "RUNNING"


def _dataset(run: Any) -> dict[str, Any]:
    """What a run's input says of its data: `n_transitions`, `n_episodes`, `environment`."""
    inputs = run.inputs.dataset_inputs if run.inputs else []
    return _json(inputs[0].dataset.profile) if inputs else {}


def _json(text: str | None) -> dict[str, Any]:
    """A tag that holds a JSON object; empty where there is none, or MLflow cut it."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
