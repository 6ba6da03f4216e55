"""The figures of a benchmark's report: learning curves, performance profiles, scores against online evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..record.results import RETURN
from ..report.charts import Theme, draw, learning_curves, line_key, png
from ..report.series import MOST, Chart, Mark, Panel, Series
from ..statistics import FEW, band
from .results import Cell
from .statistics import Curve, Runs, expected_best
from .tables import Tables

_POINTS = 241  # of a profile


def short(dataset: str) -> str:
    return dataset.rpartition("/")[2]


def styles(labels: Sequence[str]) -> dict[str, int]:
    """The style of each label's lines; those beyond `MOST` have none, and are not drawn."""
    return {label: k for k, label in enumerate(labels[:MOST])}


def curves_figure(tables: Tables, theme: Theme) -> bytes | None:
    """Returns over gradient steps, a panel a dataset; None where nothing was evaluated."""
    panels: list[Panel] = []
    for dataset in tables.benchmark.datasets:
        cells = [c for c in tables.benchmark.cells if c.dataset == dataset and c.has_scores and c.label in tables.styles]
        if cells:
            series = [Series(cell.label, tables.styles[cell.label], cell.runs) for cell in cells]
            reference = next((cell.reference for cell in cells if cell.reference), None)
            data = next((cell.data_return for cell in cells if cell.is_current), None)
            panels.append(Panel(short(dataset), series, data, reference))
    episodes = {cell.protocol.episodes for cell in tables.benchmark.cells if cell.has_scores}
    axis = f"return (mean of {episodes.pop()} episodes)" if len(episodes) == 1 else "return"
    return png(learning_curves(panels, RETURN, axis, theme)) if panels else None


def profiles_figure(tables: Tables, theme: Theme) -> bytes | None:
    """The share of runs above each score, a panel for each protocol and unit; None where nothing can be compared."""
    found = tables.comparable
    charts: list[Chart] = []
    for one in found:
        scores = np.concatenate([x for runs in one.runs.values() for x in runs.scores.values()])
        low, high = float(min(scores.min(), 0.0)), float(scores.max())
        places = np.linspace(low - 0.02 * (high - low), high + 0.02 * (high - low) or 1.0, _POINTS)
        curves = {label: one.runs[label].profile(places) for label in one.labels if label in tables.styles}
        marks = [_mark(curve, tables.styles[label], stairs=True) for label, curve in curves.items()]
        title = one.group.protocol if len(found) > 1 else ""
        charts.append(Chart(marks, title, one.group.unit, "share of runs above the score", y_limits=(-0.02, 1.04)))
    words = ["A line that is higher is better; where it crosses one half is the median run."]
    if any(runs.has_intervals for one in found for runs in one.runs.values()):
        words.append("Bands: 95 % stratified bootstrap intervals.")
    legend = _legend(tables, [set(one.runs) for one in found])
    return png(draw(charts, legend, " ".join(words), theme, columns=2, height=3.4 if len(found) > 1 else 3.8)) if found else None


def budget_figure(tables: Tables, theme: Theme) -> bytes | None:
    """The expected score of the best of k evaluated checkpoints, over k; None where nothing has finished."""
    over, panels = len(_over_datasets(tables)), [*_over_datasets(tables), *_by_dataset(tables)]
    charts: list[Chart] = []
    for title, unit, lines in panels:
        marks = [_mark(curve, tables.styles[label]) for label, (curve, _) in lines.items()]
        marks += [Mark.at(1, last, tables.styles[label], "hollow") for label, (_, last) in lines.items()]
        charts.append(Chart(marks, title, "online evaluations", f"expected {unit}"))
    words = "Lines: the best of so many of a run’s checkpoints, drawn at random, is taken. Circles: the last checkpoint, unchosen."
    if any(left_out for cell in tables.benchmark.cells for _, left_out in cell.n_evaluations.values()):
        words += " Checkpoints of a warm-up are none of them."
    few = any(1 < len(cell.evaluations) < FEW for cell in tables.benchmark.cells)
    many = any(len(cell.evaluations) >= FEW for cell in tables.benchmark.cells)
    bands = " or ".join(["min–max over seeds"] * few + ["95 % bootstrap intervals"] * many)
    means = "; of means over datasets, 95 % stratified bootstrap intervals" if over else ""
    words += f" Bands: {bands}{means}." if bands else ""
    legend = _legend(tables, [set(lines) for _, _, lines in panels])
    return png(draw(charts, legend, words, theme, height=2.9 if len(panels) > 1 else 3.8)) if panels else None


_Lines = Mapping[str, tuple[Curve, float]]
_Panel = tuple[str, str, _Lines]  # its title, the unit of its scores, its lines by label


def _legend(tables: Tables, drawn: Sequence[set[str]]) -> list[tuple[str, Mark]]:
    return [line_key(style, label) for label, style in tables.styles.items() if any(label in one for one in drawn)]


def _mark(curve: Curve, style: int, *, stairs: bool = False) -> Mark:
    return Mark(curve.places, curve.values, style, "mean", curve.low, curve.high, stairs=stairs)


def _bests(cell: Cell) -> np.ndarray | None:
    """The expected best by number of evaluations of each seed that finished: [seeds, evaluations]; None where none did."""
    most = max((len(values) for values in cell.evaluations.values()), default=0)
    found = [expected_best(values) for values in cell.evaluations.values() if len(values) == most]
    return np.stack(found) if found else None


def _by_dataset(tables: Tables) -> list[_Panel]:
    panels: list[_Panel] = []
    for dataset in tables.benchmark.datasets:
        lines: dict[str, tuple[Curve, float]] = {}
        unit = ""
        for cell in (c for c in tables.benchmark.cells if c.dataset == dataset and c.label in tables.styles):
            if (bests := _bests(cell)) is not None:
                over, several = band(bests), len(bests) > 1
                places = np.arange(1, bests.shape[1] + 1)
                curve = Curve(places, over.mean, over.low if several else None, over.high if several else None)
                lines[cell.label] = curve, float(np.mean([values[-1] for values in cell.evaluations.values()]))
                unit = _kind(cell.unit) if cell.is_normalized else "return"
        if lines:
            panels.append((short(dataset), unit, lines))
    return panels


def _over_datasets(tables: Tables) -> list[_Panel]:
    """A panel for each group of several datasets that can be compared and were evaluated equally often."""
    panels: list[_Panel] = []
    for one in (one for one in tables.comparable if len(one.datasets) > 1):
        lines: dict[str, tuple[Curve, float]] = {}
        for label in (label for label in one.labels if label in tables.styles):
            cells = [c for c in one.group.cells if c.label == label and c.dataset in one.datasets]
            bests = {cell.dataset: found for cell in cells if (found := _bests(cell)) is not None}
            counts = {found.shape[1] for found in bests.values()}
            if len(bests) == len(one.datasets) and len(counts) == 1:
                curve = Runs(label, bests).mean_curve(np.arange(1, counts.pop() + 1))
                last = [np.mean([values[-1] for values in cell.evaluations.values()]) for cell in cells]
                lines[label] = curve, float(np.mean(last))
        if lines:
            panels.append((f"mean of {len(one.datasets)} datasets", _kind(one.group.unit), lines))
    return panels


def _kind(unit: str) -> str:
    """Name a unit of normalised scores in few words."""
    return unit if unit.endswith("%") else "normalised return"
