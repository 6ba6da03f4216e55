"""Lines of a figure: a configuration's curves over its seeds, and panels of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...algos.environments.scores import Reference
from ..record.results import ConfigurationResult, Curve, SeedResult
from ..statistics import Band, band

MOST = 12  # lines of a figure; more cannot be told apart


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


@dataclass(frozen=True)
class Panel:
    """Lines that share a task, and so an axis."""

    title: str
    series: Sequence[Series]
    data_return: float | None = None
    reference: Reference | None = None
