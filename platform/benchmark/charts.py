"""The figures of a benchmark's report: learning curves, performance profiles, scores against online evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..record.results import RETURN
from ..report.charts import Theme, color_of, dash_of, finished, frame, learning_curves, line, png
from ..report.series import MOST, Panel, Series
from ..statistics import FEW, band
from .results import Cell
from .statistics import Curve, Runs, expected_best
from .tables import Tables

_POINTS = 241  # of a profile


def short(dataset: str) -> str:
    """A dataset's name without its group."""
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
    if not found:
        return None
    columns = min(2, len(found))
    figure, grid = frame(-(-len(found) // columns), columns, 3.8 if len(found) == 1 else 3.4, len(found), theme)
    for axes, one in zip(grid, found, strict=False):
        scores = np.concatenate([x for runs in one.runs.values() for x in runs.scores.values()])
        low, high = float(min(scores.min(), 0.0)), float(scores.max())
        places = np.linspace(low - 0.02 * (high - low), high + 0.02 * (high - low) or 1.0, _POINTS)
        for label in (label for label in one.labels if label in tables.styles):
            _draw(axes, one.runs[label].profile(places), tables.styles[label], theme, steps=True)
        axes.set_ylim(-0.02, 1.04)
        axes.set_ylabel("share of runs above the score", color=theme.ink, fontsize=10, labelpad=8)
        axes.set_xlabel(one.group.unit, color=theme.ink, fontsize=10, labelpad=6)
        if len(found) > 1:
            axes.set_title(one.group.protocol, loc="left", fontsize=9.5, color=theme.ink, pad=8, parse_math=False)
    shown = [label for label in tables.styles if any(label in one.runs for one in found)]
    words = ["A line that is higher is better; where it crosses one half is the median run."]
    if any(runs.has_intervals for one in found for runs in one.runs.values()):
        words.append("Bands: 95 % stratified bootstrap intervals.")
    return png(finished(figure, [line(tables.styles[label], label, theme) for label in shown], " ".join(words), theme))


def budget_figure(tables: Tables, theme: Theme) -> bytes | None:
    """The expected score of the best of k evaluated checkpoints, over k; None where nothing has finished."""
    panels = [*_over_datasets(tables), *_by_dataset(tables)]
    if not panels:
        return None
    columns = min(3, len(panels))
    figure, grid = frame(-(-len(panels) // columns), columns, 2.9 if len(panels) > 1 else 3.8, len(panels), theme)
    for axes, (title, unit, lines) in zip(grid, panels, strict=False):
        axes.set_title(title, loc="left", fontsize=9.5, color=theme.ink, pad=6, parse_math=False)
        for label, (curve, last) in lines.items():
            _draw(axes, curve, tables.styles[label], theme)
            axes.plot(
                1, last, "o", ms=5, mfc=theme.ground, mec=color_of(tables.styles[label], theme), mew=1.5, zorder=4, clip_on=False
            )
        axes.set_ylabel(f"expected {unit}", color=theme.ink, fontsize=9, labelpad=6)
        axes.set_xlabel("online evaluations", color=theme.ink, fontsize=9, labelpad=5)
    shown = [label for label in tables.styles if any(label in lines for _, _, lines in panels)]
    words = "Lines: the best of so many of a run’s checkpoints, drawn at random, is taken. Circles: the last checkpoint, unchosen."
    if any(left_out for cell in tables.benchmark.cells for _, left_out in cell.n_evaluations.values()):
        words += " Checkpoints of a warm-up are none of them."
    few = any(1 < len(cell.evaluations) < FEW for cell in tables.benchmark.cells)
    many = any(len(cell.evaluations) >= FEW for cell in tables.benchmark.cells)
    kinds = [*(["min–max over seeds"] if few else []), *(["95 % bootstrap intervals" if many else ""])]
    bands = " or ".join(filter(None, kinds))
    means = "; of means over datasets, 95 % stratified bootstrap intervals" if len(panels) > len(_by_dataset(tables)) else ""
    words += f" Bands: {bands}{means}." if bands else ""
    return png(finished(figure, [line(tables.styles[label], label, theme) for label in shown], words, theme))


_Lines = Mapping[str, tuple[Curve, float]]
_Panel = tuple[str, str, _Lines]  # its title, the unit of its scores, its lines by label


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
                unit = "normalised return" if cell.is_normalized else "return"
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
            panels.append((f"mean of {len(one.datasets)} datasets", "normalised return", lines))
    return panels


def _draw(axes: Any, curve: Curve, style: int, theme: Theme, *, steps: bool = False) -> None:
    color = color_of(style, theme)
    where: dict[str, Any] = {"step": "post"} if steps else {}
    if curve.low is not None and curve.high is not None:
        axes.fill_between(curve.places, curve.low, curve.high, color=color, alpha=0.14, lw=0, zorder=1.8, **where)
    drawn: dict[str, Any] = {"drawstyle": "steps-post"} if steps else {}
    alone = len(curve.places) == 1
    axes.plot(
        curve.places, curve.values, color=color, lw=2.0, ls=dash_of(style), zorder=3, marker="o" if alone else None, ms=4, **drawn
    )
