"""A benchmark's results: what each algorithm came to on each dataset, and what of it may stand in one table.

A *cell* is an algorithm entry on a dataset, with its seeds. `reading.py` reads them from the tracking server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...algos.environments.ogbench import is_ogbench
from ...algos.environments.scores import Reference, reference_in
from ...algos.registry import algorithm_class, algorithm_names
from ..record.results import NORMALIZED, RETURN, SUCCESS, ConfigurationResult, Curve, Score, SeedResult
from ..storage.trials import Status
from .published import Selection
from .suite import is_for


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
    machine: str  # of the command, which on a cluster need not be the one that trained
    node: str  # that trained
    code: str  # commit of the folder in which the command was given, and whether files there were changed


@dataclass(frozen=True, eq=False)
class Cell:
    """An algorithm entry on a dataset, with the seeds that have a run."""

    dataset: str
    label: str
    protocol: Protocol
    fingerprint: str  # of the data
    size: str  # of the data, in words; empty where it is not known
    runs: ConfigurationResult
    settings: Mapping[str, str]  # MLflow's parameters
    origins: Mapping[int, Origin]  # by seed
    is_current: bool = True  # whether its protocol and data are the newest of that label on that dataset
    data_return: float | None = None  # mean return of the data's own episodes; None where it was not kept

    @cached_property
    def reference(self) -> Reference | None:
        """The reference of its normalised returns; None if none were measured, or it is unknown."""
        found = reference_in(self.runs.environment, self.dataset)
        if found is None or not self.is_normalized:
            return None
        measured = list(filter(None, map(_last_of_both, self.runs.seeds)))  # of a policy that diverged there may be none
        agree = [np.isclose(found.score(raw), normalized, rtol=1e-3, atol=1e-2) for raw, normalized in measured]
        return found if any(agree) or not agree else None

    @cached_property
    def is_normalized(self) -> bool:
        return any(NORMALIZED in run.curves for run in self.runs.seeds)

    @property
    def has_scores(self) -> bool:
        return any(self.metric in run.curves for run in self.runs.seeds)

    @property
    def unit(self) -> str:
        if not self.is_normalized:
            return "return"
        if self.runs.environment is not None and is_ogbench(self.runs.environment):
            return "success rate in %"
        return self.reference.label if self.reference else "normalised return"

    @property
    def metric(self) -> str:
        return NORMALIZED if self.is_normalized else RETURN

    @property
    def data_score(self) -> float | None:
        """The data's own mean return, in the unit of the scores; None where that is not known."""
        if self.data_return is None or not self.is_normalized:
            return self.data_return
        return None if self.reference is None else float(self.reference.score(self.data_return))

    @property
    def pretrained(self) -> int:
        """Gradient steps on the data alone before it acted; 0 where there are none, or nothing but."""
        return int(self.settings.get("online.pretrain", 0))

    @property
    def before_acting(self) -> dict[int, float]:
        """The evaluation where its offline steps ended, of each seed that finished."""
        found = {run.seed: run.curves[self.metric].at(self.pretrained) for run in self.runs.seeds if run.seed in self.final}
        return {seed: value for seed, value in found.items() if value is not None and np.isfinite(value)}

    @property
    def warm_up(self) -> int:
        """Gradient steps at first in which its policy sees no critic, as its settings say: evaluations by then are of none."""
        name = self.runs.algorithm
        setting = algorithm_class(name).warm_up if name in algorithm_names() else None  # RLlib's, or a plugin that is not here
        text = self.settings.get(f"algorithm.{setting}", "")
        return int(text) if text.isdecimal() else 0

    def counted(self, run: SeedResult, metric: str = "") -> Curve | None:
        """A run's evaluations after its warm-up, of the score or another metric; None where there is none."""
        curve = run.curves.get(metric or self.metric)
        if curve is None or not self.warm_up:
            return curve
        kept = curve.steps > self.warm_up
        return Curve(curve.steps[kept], curve.values[kept]) if kept.any() else None

    def best_of(self, run: SeedResult, metric: str = "") -> tuple[float, int] | None:
        """A run's best finite evaluation after its warm-up, and its step."""
        curve = self.counted(run, metric)
        return None if curve is None else curve.best(is_cost=False)

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

    @cached_property
    def tasks(self) -> dict[int, dict[int, float]]:
        """Where tasks came in turn, the share of a task's episodes that those seeds solved in the last evaluation, in percent."""
        names = {name: task for run in self.runs.seeds for name in run.curves if (task := task_of(name)) is not None}
        found = {task: self.runs.score(name).values for name, task in sorted(names.items(), key=lambda named: named[1])}
        return {task: {seed: 100 * values[seed] for seed in self.final if seed in values} for task, values in found.items()}

    @property
    def best(self) -> dict[int, float]:
        """The best evaluation of each of those seeds, after its warm-up."""
        found = {run.seed: self.best_of(run) for run in self.runs.seeds}
        return {seed: best[0] for seed in self.final if (best := found[seed]) is not None}

    @property
    def returns(self) -> dict[Selection, dict[int, float]]:
        """Raw returns of the last and best evaluations, of seeds with finite returns there."""
        best = {run.seed: self.best_of(run, RETURN) for run in self.runs.seeds if run.seed in self.best}
        last = self.runs.score(RETURN).values
        return {
            "last": {seed: last[seed] for seed in self.final if seed in last},
            "best": {seed: found[0] for seed, found in best.items() if found is not None},
        }

    @property
    def evaluations(self) -> dict[int, np.ndarray]:
        """Every evaluation after the warm-up, of each of those seeds of which all are finite."""
        found = {run.seed: self.counted(run) for run in self.runs.seeds if run.seed in self.final}
        return {seed: curve.values for seed, curve in found.items() if curve is not None and np.isfinite(curve.values).all()}

    @property
    def n_evaluations(self) -> dict[int, tuple[int, int]]:
        """How often each of those seeds was evaluated after its warm-up, and in it."""
        final = [run for run in self.runs.seeds if run.seed in self.final]
        counted = {run.seed: 0 if (curve := self.counted(run)) is None else len(curve.steps) for run in final}
        return {run.seed: (counted[run.seed], len(run.curves[self.metric].steps) - counted[run.seed]) for run in final}

    def count(self, *statuses: Status) -> int:
        return sum(run.status in statuses for run in self.runs.seeds)


def _last_of_both(run: SeedResult) -> tuple[float, float] | None:
    """The last return of a run that is finite, normalised too; None where there is none."""
    if not {RETURN, NORMALIZED} <= set(run.curves):
        return None
    raw, normalized = run.curves[RETURN], run.curves[NORMALIZED]
    steps = [step for step, value in zip(raw.steps, raw.values, strict=True) if np.isfinite(value)]
    pairs = [(raw.at(step), normalized.at(step)) for step in steps]
    return next(((r, n) for r, n in reversed(pairs) if r is not None and n is not None and np.isfinite(n)), None)


@dataclass(frozen=True, eq=False)
class Group:
    """Cells that may stand in one table, and be averaged over its datasets: a label has one protocol there, and all one unit."""

    unit: str
    cells: tuple[Cell, ...]

    @property
    def is_normalized(self) -> bool:
        return self.cells[0].is_normalized

    @property
    def datasets(self) -> list[str]:
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

    Scores in different units are kept apart `by_unit`; what only compares runs on a dataset need not.
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
        labels = labels_of(self.about)
        return dataset in self.about.get("datasets", ()) and label in labels and is_for(dataset, labels[label])

    @property
    def n_runs(self) -> int:
        """Runs that the suite asks for, and others that there are."""
        asked = sum(self.awaits(dataset, label) for dataset in self.datasets for label in self.labels) * len(self.seeds)
        of_others = sum(len(set(cell.origins) - set(self.seeds)) for cell in self.cells if self.awaits(cell.dataset, cell.label))
        return asked + of_others + sum(len(cell.origins) for cell in self.cells if not self.awaits(cell.dataset, cell.label))

    def count(self, *statuses: Status) -> int:
        return sum(cell.count(*statuses) for cell in self.cells)


def task_of(metric: str) -> int | None:
    """The task whose share of solved episodes a metric is; None: it is another."""
    number = metric.removeprefix(f"{SUCCESS}_task")
    return int(number) if number != metric and number.isdecimal() else None


def labels_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """The algorithms of a suite's definition, which may have their settings too, and what each is only for."""
    named = [one if isinstance(one, Mapping) else {"label": one} for one in about.get("algorithms", ())]
    return {one["label"]: one.get("only") for one in named}
