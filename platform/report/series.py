"""What figures show, whatever draws them: marks, charts of them, and the curves of configurations as such.

`charts.py` draws charts as pictures with matplotlib, `jobs/views/curves_text.py` into a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...algos.environments.scores import Reference
from ..record.results import ConfigurationResult, Curve, SeedResult
from ..statistics import FEW, Band, band

MOST = 12  # lines of a figure; more cannot be told apart

Kind = Literal["mean", "seed", "uncounted", "rule", "end", "point", "stopped", "best", "hollow"]


@dataclass(frozen=True, eq=False)
class Mark:
    """Points, joined by a line or not."""

    x: np.ndarray
    y: np.ndarray  # [points]; what is not finite is a gap. Without x a rule goes across
    style: int | None = None  # its colour and dash; None: that of what is no result
    # how it looks: a mean over seeds, a seed, one that is in no mean, a dashed rule, where a seed failed or was stopped, a
    # configuration, one that was stopped, the best one, a value that was not chosen
    kind: Kind = "mean"
    low: np.ndarray | None = None
    high: np.ndarray | None = None  # ends of the band around it, [points]; None: it has none
    alpha: float = 1.0  # how opaque it is
    size: float | None = None  # of a point
    stairs: bool = False  # it holds until the next point

    @classmethod
    def at(cls, x: Any, y: Any, style: int | None, kind: Kind) -> Mark:
        """A single point."""
        return cls(np.array([x]), np.array([y]), style, kind)

    @classmethod
    def across(cls, y: float) -> Mark:
        """A rule over the whole width."""
        return cls(np.zeros(0), np.array([y]), kind="rule")


@dataclass(frozen=True, eq=False)
class Chart:
    """Marks between two axes."""

    marks: Sequence[Mark]  # the later ones above the earlier
    title: str = ""  # above it
    x_name: str = ""
    y_name: str = ""  # of the axes, said once for charts that share one
    log_x: bool = False
    log_y: bool = False  # whether a scale is logarithmic
    x_ticks: Sequence[float] = ()  # where x is said; empty: wherever there is room
    kinds: Sequence[str] = ()  # names of what stands at x = 0, 1, …; empty: x is a number
    whole: bool = True  # whether x is a whole number
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float | None, float | None] | None = None  # none: as far as there are marks
    reference: Reference | None = None  # what a second scale on the right is relative to


@dataclass(frozen=True)
class Series:
    """A configuration in a figure; `style` is its colour and dash, the same in every figure of a page."""

    label: str
    style: int
    configuration: ConfigurationResult

    def counted(self, metrics: Sequence[str]) -> tuple[int, int]:
        """How many seeds count at the end, of how many."""
        metric = next((m for m in metrics if self.seeds(m)), metrics[0])
        return len(self.configuration.score(metric).values), len(self.configuration.seeds)

    def seeds(self, metric: str) -> list[tuple[SeedResult, Curve, bool]]:
        """Seeds that measured a metric, each with whether it counts in the mean."""
        counted = self.configuration.score(metric).values
        return [(one, one.curves[metric], one.seed in counted) for one in self.configuration.seeds if metric in one.curves]

    def band(self, metric: str) -> tuple[np.ndarray, Band] | None:
        """Steps that every seed that counts has measured, and the band there; None where no seed counts."""
        counted = [curve for _, curve, counts in self.seeds(metric) if counts]
        if not counted:
            return None
        steps = counted[0].steps
        for curve in counted[1:]:
            steps = np.intersect1d(steps, curve.steps)
        return steps, band(np.stack([curve.values[np.searchsorted(curve.steps, steps)] for curve in counted]))

    def marks(self, metric: str) -> Iterator[Mark]:
        """Each seed as a thin line, with a cross where it failed or was stopped, and their mean with its band."""
        found = self.seeds(metric)
        for run, curve, counts in found:
            alpha = 0.9 if not counts else 0.45 if len(found) < FEW else 0.28
            yield Mark(curve.steps, curve.values, self.style, "seed" if counts else "uncounted", alpha=alpha)
            if run.status in ("FAILED", "KILLED") and (good := np.flatnonzero(np.isfinite(curve.values))).size:
                yield Mark.at(curve.steps[good[-1]], curve.values[good[-1]], self.style, "end")
        if (over := self.band(metric)) is not None and len(over[0]):
            steps, mean = over
            low, high = (mean.low, mean.high) if mean.what else (None, None)
            yield Mark(steps, mean.mean, self.style, "mean", low, high)


@dataclass(frozen=True)
class Panel:
    """Lines that share a task, and so an axis."""

    title: str
    series: Sequence[Series]
    data_return: float | None = None
    reference: Reference | None = None

    def chart(self, metric: str, title: str, axis: str = "") -> Chart:
        """A metric over gradient steps; the data's own mean is a rule."""
        marks = [mark for one in self.series for mark in one.marks(metric)]
        marks += [] if self.data_return is None else [Mark.across(self.data_return)]
        return Chart(marks, title, "gradient steps", axis, reference=self.reference)
