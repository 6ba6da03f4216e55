"""Metrics of configurations in a few numbers each, and what sets several configurations apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..settings.objective import is_cost
from ..statistics import LEVEL, Difference, Summary, difference, holm, paired_difference, summarise
from .reading import Configuration, Score, differences

TEST_LEVEL = 1 - LEVEL  # a difference is shown where the corrected p value is below


@dataclass(frozen=True)
class MetricSummary:
    """A metric of a configuration over the seeds that count, each seed one number.

    Attributes:
        metric: Its name.
        step: Where `final` was measured.
        final: At that step.
        best: The largest of each seed, of losses and errors the smallest.
        best_steps: Where each seed measured it, by seed.
        recent: The mean of each seed's newest points up to `step`.
        n_recent: How many points those were at most.
        low, high: The smallest and the largest finite value of any of these seeds.
    """

    metric: str
    step: int
    final: Summary
    best: Summary
    best_steps: Mapping[int, int]
    recent: Summary
    n_recent: int
    low: float
    high: float


def summarise_metric(configuration: Configuration, metric: str, last: int = 10) -> MetricSummary | None:
    """A metric in a few numbers; None where no seed counts, for which `configuration.score(metric)` gives the reasons."""
    score = configuration.score(metric)
    if score.summary is None:
        return None
    runs = [run for run in configuration.seeds if run.seed in score.values]
    curves = [run.curves[metric] for run in runs]
    upto = [curve.values[(curve.steps <= score.step) & np.isfinite(curve.values)] for curve in curves]
    best = {run.seed: found for run in runs if (found := run.best(metric)) is not None}
    return MetricSummary(
        metric,
        score.step,
        score.summary,
        summarise([value for value, _ in best.values()]),
        {seed: step for seed, (_, step) in best.items()},
        summarise([float(values[-last:].mean()) for values in upto]),
        min(last, max(map(len, upto))),
        min(float(values.min()) for values in upto),
        max(float(values.max()) for values in upto),
    )


@dataclass(frozen=True)
class Verdict:
    """A configuration beside the first one.

    Attributes:
        difference: Of the metric's means, this configuration's less the first one's; None where either has no seed that counts.
        p: Corrected by Holm for how many configurations are compared with the first; None where one of the two has no two seeds.
    """

    difference: Difference | None
    p: float | None

    @property
    def is_shown(self) -> bool:
        """Whether seeds show that the two differ."""
        return self.p is not None and self.p < TEST_LEVEL


@dataclass(frozen=True)
class Comparison:
    """Configurations side by side.

    Attributes:
        configurations: The first is the one that others are compared with.
        settings: Those in which they differ, by dotted name, a value for each; where one has none, it is missing there.
        scores: By metric, of each configuration that has it.
        metric: The one that is tested; None where nothing was measured.
        verdicts: Of each configuration but the first.
        paired: Whether seeds of equal number belong together.
    """

    configurations: tuple[Configuration, ...]
    settings: Mapping[str, tuple[Any, ...]]
    scores: Mapping[str, tuple[Score | None, ...]]
    metric: str | None
    verdicts: tuple[Verdict, ...]
    paired: bool

    @property
    def is_cost(self) -> bool:
        """Whether less of the metric is better."""
        return self.metric is not None and is_cost(self.metric)


MISSING = object()  # in place of a setting that a configuration has not


def compare(configurations: Sequence[Configuration], metric: str | None, *, paired: bool = False) -> Comparison:
    """Sets configurations side by side.

    Args:
        configurations: At least two.
        metric: The one that is tested, or None.
        paired: Whether seeds of equal number belong together, as episodes that begin alike; else the test is Welch's.
    """
    telling = differences([{**one.settings, "dataset": one.dataset.get("name")} for one in configurations])
    names = list({name: None for one in telling for name in one})
    measured = list({name: None for one in configurations for name in one.metrics()})
    scores = {
        name: tuple(one.score(name) if name in one.metrics() else None for one in configurations)
        for name in sorted(measured, key=lambda name: name != metric)
    }
    verdicts: list[Verdict] = []
    if metric is not None:
        first, *others = (score.values if score else {} for score in scores[metric])
        found = [_difference(other, first, paired=paired) for other in others]
        tested = [one.p for one in found if one is not None and one.p is not None]
        corrected = iter(holm(tested))
        verdicts = [Verdict(one, None if one is None or one.p is None else next(corrected)) for one in found]
    return Comparison(
        tuple(configurations),
        {name: tuple(one.get(name, MISSING) for one in telling) for name in names},
        scores,
        metric,
        tuple(verdicts),
        paired,
    )


def _difference(a: Mapping[int, float], b: Mapping[int, float], *, paired: bool) -> Difference | None:
    if paired:
        shared = sorted(a.keys() & b.keys())
        return paired_difference([a[k] for k in shared], [b[k] for k in shared]) if shared else None
    return difference(list(a.values()), list(b.values())) if a and b else None
