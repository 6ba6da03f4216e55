"""Metrics of configurations in a few numbers each, and what sets several configurations apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..record.results import ConfigurationResult, Score
from ..settings.objective import is_cost
from ..statistics import LEVEL, Difference, Summary, difference, holm, paired_difference, summarise
from .configurations import differences

TEST_LEVEL = 1 - LEVEL  # a difference is shown where the corrected p value is below


@dataclass(frozen=True)
class MetricSummary:
    """A metric of a configuration over the seeds that count, each seed one number."""

    metric: str  # its name
    step: int  # where `final` was measured
    final: Summary  # at that step
    best: Summary  # the largest of each seed, of losses and errors the smallest
    best_steps: Mapping[int, int]  # where each seed measured it, by seed
    recent: Summary  # the mean of each seed's newest points up to `step`
    n_recent: int  # how many points those were at most
    low: float
    high: float  # the smallest and the largest finite value of any of these seeds


def summarise_metric(configuration: ConfigurationResult, metric: str, last: int = 10) -> MetricSummary | None:
    """A metric in a few numbers; None where no seed counts, for which `configuration.score(metric)` gives the reasons."""
    score = configuration.score(metric)
    if score.summary is None:
        return None
    runs = [run for run in configuration.seeds if run.seed in score.values]
    curves = [run.curves[metric] for run in runs]
    upto = [curve.values[(curve.steps <= score.step) & np.isfinite(curve.values)] for curve in curves]
    best = {run.seed: found for run in runs if (found := run.best_value(metric)) is not None}
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
    """A configuration beside the first one."""

    # of the metric's means, this configuration's less the first one's; None where either has no seed that counts
    difference: Difference | None
    # corrected by Holm for how many configurations are compared with the first; None where one of the two has no two seeds
    p: float | None

    @property
    def is_shown(self) -> bool:
        return self.p is not None and self.p < TEST_LEVEL


@dataclass(frozen=True)
class Comparison:
    """Configurations side by side."""

    configurations: tuple[ConfigurationResult, ...]  # the first is the one that others are compared with
    # those in which they differ, by dotted name, a value for each; where one has none, it is missing there
    settings: Mapping[str, tuple[Any, ...]]
    scores: Mapping[str, tuple[Score | None, ...]]  # by metric, of each configuration that has it
    metric: str | None  # the one that is tested; None where nothing was measured
    verdicts: tuple[Verdict, ...]  # of each configuration but the first
    paired: bool  # whether seeds of equal number belong together

    @property
    def is_cost(self) -> bool:
        return self.metric is not None and is_cost(self.metric)


MISSING = object()  # in place of a setting that a configuration has not


def compare(configurations: Sequence[ConfigurationResult], metric: str | None, *, paired: bool = False) -> Comparison:
    """Sets two configurations or more side by side; `metric` is tested, by pairs where seeds of equal number belong together."""
    telling = differences([{**one.settings, "dataset": one.data.get("name")} for one in configurations])
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
