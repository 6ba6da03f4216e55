"""The tables of a benchmark's report: the same numbers for the page, Markdown, LaTeX and CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..report.text import NONE, decimals, ends_text, listed, mean_text, number
from ..statistics import FEW, summarise, why_below
from ..words import count
from .published import SOURCES, Published, Selection, d4rl_names, known_as, published
from .results import Benchmark, Cell, Group, grouped
from .statistics import AGGREGATES, Aggregate, Estimate, Runs, improvement

_NAMES: dict[Aggregate, str] = {"iqm": "IQM", "mean": "Mean", "median": "Median", "optimality gap": "Optimality gap"}
MISSING = "missing"
DATA = "the data"


@dataclass(frozen=True)
class Entry:
    text: str
    below: tuple[str, ...] = ()  # its interval, or why it is as it is
    strong: bool = False
    quiet: bool = False  # no result of finished training


@dataclass(frozen=True)
class Head:
    """Describe a column's or row's heading; `style` is that of its line in figures."""

    text: str
    style: int | None = None


@dataclass(frozen=True)
class Table:
    """Rows and columns with headings; `corner` names what the rows are."""

    name: str  # of its kind, for files: scores, aggregates, …
    caption: str
    corner: str
    columns: tuple[Head, ...]
    rows: tuple[tuple[Head, tuple[Entry, ...]], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparable:
    """Select what can be compared over datasets: labels with results, and datasets on which all of these have some."""

    group: Group
    labels: tuple[str, ...]
    datasets: tuple[str, ...]
    left_out: tuple[str, ...]  # datasets on which some label has none

    @classmethod
    def of(cls, group: Group) -> Comparable | None:
        """None where nothing has finished, or no dataset is done by all that have."""
        current = [cell for cell in group.cells if cell.is_current]
        done = {(cell.dataset, cell.label) for cell in current if cell.final}
        datasets = tuple(dict.fromkeys(cell.dataset for cell in current))
        labels = tuple(dict.fromkeys(cell.label for cell in current if cell.final))
        shared = tuple(d for d in datasets if all((d, label) in done for label in labels))
        left_out = tuple(d for d in datasets if d not in shared)
        return cls(group, labels, shared, left_out) if labels and shared else None

    @cached_property
    def runs(self) -> dict[str, Runs]:
        cells = [cell for cell in self.group.cells if cell.dataset in self.datasets]
        return {
            label: Runs(label, {cell.dataset: list(cell.final.values()) for cell in cells if cell.label == label})
            for label in self.labels
        }

    @property
    def words(self) -> str:
        n = {len(x) for runs in self.runs.values() for x in runs.scores.values()}
        seeds = count(min(n), "seed") if len(n) == 1 else f"{min(n)} to {max(n)} seeds"
        return f"{count(len(self.datasets), 'dataset')}, {seeds} each"

    @property
    def notes(self) -> tuple[str, ...]:
        said: list[str] = []
        if self.left_out:
            said.append(f"Not in it, because not every algorithm has finished there: {listed(self.left_out)}.")
        if not all(runs.has_intervals for runs in self.runs.values()):
            said.append("There is no interval where a dataset has a single seed.")
        return tuple(said)


@dataclass(frozen=True)
class Tables:
    benchmark: Benchmark
    styles: Mapping[str, int] = field(default_factory=dict[str, int])

    @cached_property
    def groups(self) -> list[Group]:
        return grouped(self.benchmark.cells)

    # ---- scores

    @cached_property
    def scores(self) -> list[Table]:
        """The last evaluation of every cell, a table for each protocol and unit."""
        found = [self._scores(group, first=k == 0) for k, group in enumerate(self.groups)]
        return found or [self._unscored()]

    def _scores(self, group: Group, first: bool) -> Table:
        bench, datasets = self.benchmark, list(group.datasets)
        elsewhere = {cell.dataset for other in self.groups if other is not group for cell in other.cells}
        if first:  # what has no score yet has no unit either
            datasets = [d for d in bench.datasets if d in datasets or d not in elsewhere]
        labels = self._labels(group)
        of_data = {d: cell.data_score for cell in group.cells if (d := cell.dataset) in datasets and cell.is_current}
        shows_data = any(value is not None for value in of_data.values())
        rows: list[tuple[Head, tuple[Entry, ...]]] = []
        for dataset in datasets:
            cells, data = {label: self._in(group, dataset, label) for label in labels}, of_data.get(dataset)
            means = [s.summary.mean for c in cells.values() if c and c.final and (s := c.score).summary]
            places = 1 if group.is_normalized else decimals([*means, data])
            best = max(means, default=math.inf)
            entries = tuple(self._score(dataset, label, cells[label], places, best) for label in labels)
            own = (Entry(number(data, places), quiet=True),) if shows_data else ()
            rows.append((Head(dataset), (*own, *entries)))
        caption = f"{_capital(group.unit)} at the last evaluation: mean ± standard error over seeds ({group.protocol})"
        heads = (*([Head(DATA)] if shows_data else []), *self._heads(labels))
        return Table("scores", caption, "Dataset", heads, tuple(rows), self._notes(group, datasets))

    def _score(self, dataset: str, label: str, cell: Cell | None, places: int, best: float) -> Entry:
        if cell is None:
            return self._absent(dataset, label)
        summary, n, of = cell.score.summary, len(cell.final), self._expected(cell)
        if summary is None or not cell.final:
            if summary is None:
                failed = cell.count("FAILED")
                return Entry(NONE, (f"{count(failed, 'seed')} failed" if failed else "not evaluated yet",), quiet=True)
            return Entry(number(summary.mean, places), (f"at step {cell.score.step:,}",), quiet=True)
        below = [] if summary.interval is None else [ends_text(summary.interval, places)]
        below += [f"{n} of {count(of, 'seed')}"] if n < of else []
        return Entry(mean_text(summary, places), tuple(below), strong=summary.mean == best)

    def _absent(self, dataset: str, label: str) -> Entry:
        if dataset in self.benchmark.missing:
            return Entry(NONE, (MISSING,), quiet=True)
        return Entry(NONE, ("no run yet",), quiet=True) if self.benchmark.awaits(dataset, label) else Entry("")

    def _notes(self, group: Group, datasets: Sequence[str]) -> tuple[str, ...]:
        bench = self.benchmark
        said = [f"{d} is missing: {why.strip().rstrip('.')}." for d, why in bench.missing.items() if d in datasets]
        for cell in (cell for cell in group.cells if cell.dataset in datasets):
            for run in cell.runs.seeds:
                where = f"{cell.label} on {cell.dataset}, seed {run.seed}"
                if run.status == "FAILED":
                    said.append(f"{where} failed and is in no mean: {run.reason.strip().rstrip('.') or 'nobody knows why'}.")
                elif run.status == "FINISHED" and run.seed not in cell.final:
                    why = cell.score.left_out.get(run.seed, f"its last evaluation is at step {run.step:,}")
                    said.append(f"{where} is in no mean: {why}.")
        if unfinished := sum(cell.count("RUNNING", "KILLED") for cell in group.cells):
            have = "has" if unfinished == 1 else "have"
            said.append(
                f"{count(unfinished, 'run')} {have} not finished. Where no seed of a cell has, its value is in grey, at the last "
                "step that all of its seeds have reached, and is in no aggregate."
            )
        few = sorted({len(cell.final) for cell in bench.cells if 1 < len(cell.final) < FEW})
        if few and group is self.groups[0]:
            said.append(why_below(*few))
        if not group.is_normalized:
            said.append("There is no reference score for these: returns are raw, and are in no aggregate of normalised scores.")
        return tuple(said)

    def _unscored(self) -> Table:
        bench = self.benchmark
        rows = tuple(
            (Head(d), tuple(self._score(d, label, bench.cell(d, label), 1, math.inf) for label in bench.labels))
            for d in bench.datasets
        )
        notes = tuple(f"{d} is missing: {why.strip().rstrip('.')}." for d, why in bench.missing.items())
        return Table("scores", "Nothing has been evaluated yet", "Dataset", self._heads(bench.labels), rows, notes)

    # ---- by task

    @cached_property
    def by_task(self) -> list[Table]:
        """Shares of solved episodes of each task, a table for each protocol and unit in which tasks came in turn."""
        return [self._by_task(group) for group in self.groups if any(any(cell.tasks.values()) for cell in group.cells)]

    def _by_task(self, group: Group) -> Table:
        cells = [cell for cell in group.cells if any(cell.tasks.values())]
        tasks = sorted({task for cell in cells for task in cell.tasks})
        best = {(d, task): max(_means(cells, d, task), default=math.inf) for d in group.datasets for task in tasks}
        rows = tuple(
            (
                Head(f"{cell.label} on {cell.dataset}", self.styles.get(cell.label)),
                tuple(_of_task(cell.tasks.get(task, {}), best[cell.dataset, task]) for task in tasks),
            )
            for cell in cells
        )
        caption = f"Success rate in % by task at the last evaluation: mean ± standard error over seeds ({group.protocol})"
        return Table("tasks", caption, "Algorithm and dataset", tuple(Head(f"Task {task}") for task in tasks), rows)

    # ---- from offline to online

    @cached_property
    def finetuned(self) -> list[Table]:
        """Scores where offline steps ended and at the last evaluation, a table for each protocol and unit with such runs."""
        return [self._finetuned(group) for group in self.groups if any(cell.pretrained for cell in group.cells)]

    def _finetuned(self, group: Group) -> Table:
        rows: list[tuple[Head, tuple[Entry, ...]]] = []
        for cell in group.cells:
            before, after = cell.before_acting, cell.final
            gain = {seed: after[seed] - value for seed, value in before.items()}
            where = (
                f"{'at' if before else 'not evaluated at'} step {cell.pretrained:,}"
                if cell.pretrained
                else "acted from the beginning"
            )
            places = 1 if group.is_normalized else decimals([*before.values(), *after.values()])
            entries = [
                _mean(before, places, where),
                _mean(after, places, f"at step {cell.protocol.n_steps:,}"),
                _mean(gain, places, ""),
            ]
            rows.append((Head(f"{cell.label} on {cell.dataset}", self.styles.get(cell.label)), tuple(entries)))
        caption = f"{_capital(group.unit)} before and after learning online: mean ± standard error over seeds"
        return Table("online", caption, "Algorithm and dataset", tuple(map(Head, ("Before", "After", "Gain"))), tuple(rows))

    # ---- over datasets

    @cached_property
    def comparable(self) -> list[Comparable]:
        """Groups of normalised scores that can be compared over datasets."""
        return [found for group in self.groups if group.is_normalized and (found := Comparable.of(group))]

    @cached_property
    def compared(self) -> list[Comparable]:
        """Groups of several algorithms whose runs can be compared dataset by dataset, whatever the unit."""
        groups = [Comparable.of(group) for group in grouped(self.benchmark.cells, by_unit=False)]
        return [one for one in groups if one is not None and len(one.labels) > 1]

    @cached_property
    def aggregates(self) -> list[Table]:
        """IQM, mean, median and optimality gap, a table for each protocol and unit."""
        made: list[Table] = []
        for one in self.comparable:
            by_label = {label: {what: runs.aggregate(what) for what in AGGREGATES} for label, runs in one.runs.items()}
            best = {what: max(found[what].value for found in by_label.values()) for what in AGGREGATES[:3]}
            best["optimality gap"] = min(found["optimality gap"].value for found in by_label.values())
            ranked = sorted(by_label, key=lambda label: -by_label[label]["iqm"].value)
            rows = tuple(
                (self._head(label), tuple(_estimate(by_label[label][what], best[what]) for what in AGGREGATES)) for label in ranked
            )
            caption = f"{_capital(one.group.unit)} over {one.words}, by IQM"
            heads = tuple(Head(_NAMES[what]) for what in AGGREGATES)
            made.append(Table("aggregates", caption, "Algorithm", heads, rows, one.notes))
        return made

    @cached_property
    def improvements(self) -> list[Table]:
        """How probable it is that one algorithm scores above another, a table for each protocol; raw returns count here too."""
        made: list[Table] = []
        for one in self.compared:
            rows = tuple((self._head(x), tuple(_probability(one.runs[x], one.runs[y]) for y in one.labels)) for x in one.labels)
            caption = f"Probability that a run of the row scores above one of the column, over {one.words}"
            made.append(Table("improvements", caption, "Algorithm", self._heads(one.labels), rows, one.notes))
        return made

    # ---- best against last

    @cached_property
    def gaps(self) -> list[Table]:
        """Tables of the best evaluation minus the last, mean over seeds."""
        return [self._gaps(group) for group in self.groups if any(cell.final for cell in group.cells)]

    def _gaps(self, group: Group) -> Table:
        labels = [label for label in self._labels(group) if any(c.final for c in group.cells if c.label == label)]
        rows: list[tuple[Head, tuple[Entry, ...]]] = []
        for dataset in group.datasets:
            cells = [self._in(group, dataset, label) for label in labels]
            values = [value for c in cells if c for value in c.best.values()]
            places = 1 if group.is_normalized else decimals(values)
            rows.append((Head(dataset), tuple(_gap(cell, places) for cell in cells)))
        n = sorted({counted for cell in group.cells for counted, _ in cell.n_evaluations.values() if counted})
        of = "no evaluation" if not n else count(n[0], "evaluation") if n[0] == n[-1] else f"{n[0]} to {n[-1]} evaluations"
        caption = f"Best of {of} minus the last, mean over seeds, and below it the mean of the best: {group.unit}"
        return Table("gaps", caption, "Dataset", self._heads(labels), tuple(rows), _warm_ups(group))

    # ---- beside what others published

    @cached_property
    def published(self) -> list[Table]:
        """Final and best scores beside published ones, where there are any for a dataset and algorithm of the suite."""
        rows: list[tuple[Head, dict[tuple[str, Selection], Entry]]] = []
        for cell in (cell for cell in self.benchmark.cells if cell.is_normalized):
            for name in d4rl_names(cell.dataset):
                theirs = published().get((name, known_as(cell.runs.algorithm, cell.settings)), {})
                if not theirs:
                    continue
                beside = "" if cell.dataset.endswith(f"/{name}") or cell.dataset == name else f" beside {name}"
                entries = {place: _theirs(p) for place, p in theirs.items()}
                raw = cell.returns if any(p.returned for p in theirs.values()) else {}
                ours: tuple[tuple[Selection, dict[int, float]], ...] = (("last", cell.final), ("best", cell.best))
                why_none = "all in the warm-up" if cell.final else "not finished"
                entries |= {("", selection): _ours(values, raw.get(selection, {}), why_none) for selection, values in ours}
                rows.append((Head(f"{cell.label} on {cell.dataset}{beside}"), entries))
        made: list[Table] = []
        for selection in ("last", "best"):
            sources = [one for one in SOURCES if any((one, selection) in entries for _, entries in rows)]
            here = [(head, entries) for head, entries in rows if any((one, selection) in entries for one in sources)]
            if here:
                heads = (Head("here"), *(Head(f"{one}, {SOURCES[one].seeds} seeds") for one in sources))
                body = tuple((h, tuple(e.get((one, selection), Entry(NONE)) for one in ("", *sources))) for h, e in here)
                notes = tuple(
                    f"{s.name}: {s.where}. {_capital(s.protocol)}; {s.spread}." for s in map(SOURCES.__getitem__, sources)
                )
                caption = f"The {selection} evaluation here, as mean ± standard error over seeds, and as published, D4RL-normalised"
                if any(entry.below and entry.text != NONE for row in body for entry in row[1][1:]):
                    caption += "; below it the return as it is, where it was printed"
                made.append(Table(f"published-{selection}", caption, "Algorithm and dataset", heads, body, notes))
        return made

    @property
    def all(self) -> list[Table]:
        return [*self.scores, *self.by_task, *self.finetuned, *self.aggregates, *self.improvements, *self.gaps, *self.published]

    # ---- parts

    def _labels(self, group: Group) -> list[str]:
        """Columns of a group: what has a cell in it, and what the suite has nowhere run yet."""
        inside = {cell.label for cell in group.cells}
        ran = {cell.label for other in self.groups for cell in other.cells}
        return [label for label in self.benchmark.labels if label in inside or label not in ran]

    def _in(self, group: Group, dataset: str, label: str) -> Cell | None:
        """The cell, where its protocol and unit are the group's, or where it has none because nothing was evaluated."""
        cell = self.benchmark.cell(dataset, label)
        others = [one for other in self.groups if other is not group for one in other.cells]
        return None if cell in others else cell

    def _head(self, label: str) -> Head:
        return Head(label, self.styles.get(label))

    def _heads(self, labels: Sequence[str]) -> tuple[Head, ...]:
        return tuple(map(self._head, labels))

    def _expected(self, cell: Cell) -> int:
        return len({*cell.origins, *(self.benchmark.seeds if self.benchmark.awaits(cell.dataset, cell.label) else ())})


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _estimate(one: Estimate, best: float) -> Entry:
    return Entry(number(one.value, 1), _interval(one, 1), strong=one.value == best)


def _interval(one: Estimate, places: int) -> tuple[str, ...]:
    return () if one.interval is None else (ends_text(one.interval, places),)


def _probability(x: Runs, y: Runs) -> Entry:
    if x is y:
        return Entry("")
    one = improvement(x, y)
    return Entry(number(one.value, 2), _interval(one, 2), strong=one.interval is not None and one.interval[0] > 0.5)


def _gap(cell: Cell | None, places: int) -> Entry:
    if cell is None or not cell.best:
        return Entry(NONE, quiet=True)
    best = math.fsum(cell.best.values()) / len(cell.best)
    last = math.fsum(cell.final.values()) / len(cell.final)
    return Entry(number(best - last, places), (number(best, places),))


def _warm_ups(group: Group) -> tuple[str, ...]:
    """How many evaluations of a run are of its algorithm's warm-up, and so not counted."""
    found = [(cell, counted, left_out) for cell in group.cells for counted, left_out in cell.n_evaluations.values() if left_out]
    said = [
        f"{cell.label}: {left_out:,} of {count(counted + left_out, 'evaluation')} of a run came in its warm-up, the first "
        f"{cell.warm_up:,} steps, in which the policy sees no critic. They are not counted here."
        for cell, counted, left_out in found
    ]
    return tuple(dict.fromkeys(said))


def _mean(values: Mapping[int, float], places: int, below: str) -> Entry:
    text = mean_text(summarise(list(values.values())), places) if values else NONE
    return Entry(text, (below,) if below else (), quiet=not values)


def _means(cells: Sequence[Cell], dataset: str, task: int) -> list[float]:
    found = [cell.tasks.get(task) for cell in cells if cell.dataset == dataset]
    return [summarise(list(values.values())).mean for values in found if values]


def _of_task(values: Mapping[int, float], best: float) -> Entry:
    if not values:
        return Entry(NONE, quiet=True)
    summary = summarise(list(values.values()))
    below = () if summary.interval is None else (ends_text(summary.interval, 1),)
    return Entry(mean_text(summary, 1), below, strong=summary.mean == best)


def _theirs(one: Published) -> Entry:
    below = (f"return {number(float(one.returned), 1)}",) if one.returned else ()
    return Entry(one.score + (f" ± {one.spread}" if one.spread else ""), below)


def _ours(values: Mapping[int, float], raw: Mapping[int, float], why_none: str) -> Entry:
    if not values:
        return Entry(NONE, (why_none,), quiet=True)
    found = summarise(list(values.values()))
    below = (f"return {number(summarise(list(raw.values())).mean, 1)}",) if raw else ()
    return Entry(mean_text(found, 1), (*below, count(found.n, "seed")), strong=True)
