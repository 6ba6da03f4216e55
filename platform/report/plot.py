"""What a plot shows: which metrics of which runs, averaged over seeds, smoothed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..results.reading import Configuration, Results, SeedRun
from ..storage.outbox import Line
from .series import Panel
from .tasks import axis_name, check_metrics, choose_metric, group, measured, metric_names, panels

D3RLPY_RETURN = "environment"  # as d3rlpy's scripts call what an EnvironmentEvaluator gives


def metrics_of(results: Sequence[Results], asked: Sequence[str] | None) -> list[str]:
    """The metrics that are drawn: those asked for, or "all"; else the score; else losses; else all.

    Raises:
        ConfigError: nothing measured one that is asked for; the nearest is named.
    """
    if asked == ["all"]:
        return measured(results)
    if asked is not None:
        check_metrics(results, asked)
        return list(asked)
    known = measured(results)
    if (score := choose_metric(results, None)) is not None:
        return [score]
    if D3RLPY_RETURN in known:
        return [D3RLPY_RETURN]
    return [name for name in known if name.endswith("loss")] or known


def panels_of(results: Sequence[Results], metrics: Sequence[str], window: int = 1) -> tuple[list[Panel], int]:
    """Panels with those series that have any of the metrics, and how many were left out because a figure holds only so many.

    Args:
        results: Of every source.
        metrics: What is drawn; the first decides which lines are the best.
        window: Every point becomes the mean of itself and those before it, so many in all.
    """
    shown = [replace(one, configurations=tuple(smoothed(c, window) for c in one.configurations)) for one in results]
    found, left_out = panels(group(shown), metrics[0])
    kept = [replace(p, series=[s for s in p.series if any(s.seeds(m) for m in metrics)]) for p in found]
    return [panel for panel in kept if panel.series], left_out


def figure(results: Sequence[Results], drawn: Sequence[Panel], metrics: Sequence[str], ending: str) -> bytes:
    """The curves as a picture: one metric large, several small.

    Args:
        results: Which the panels are of.
        drawn: As `panels_of` gives them.
        metrics: What is drawn.
        ending: "png", "svg" or "pdf".
    """
    from .charts import LIGHT, image, learning_curves, losses  # matplotlib, which a terminal does without

    if len(metrics) == 1:
        return image(learning_curves(drawn, metrics[0], axis_name(results, metrics[0]), LIGHT), ending)
    names = [name for name in metric_names(drawn) if name in metrics]
    return image(losses([replace(panel, data_return=None) for panel in drawn], names, LIGHT), ending)


def smoothed(configuration: Configuration, window: int) -> Configuration:
    """A configuration whose curves are means over the newest points; for a window of 1 itself."""
    if window == 1:
        return configuration
    seeds = tuple(replace(run, measured=_lines_of(run, window)) for run in configuration.seeds)
    return replace(configuration, seeds=seeds, _scores={})


def trailing_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and those before it, `window` in all, fewer at the beginning; what is not finite is left out.

    Where nothing in a window is finite the mean is NaN.
    """
    good = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(good, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(good)])
    first = np.maximum(np.arange(len(values)) + 1 - window, 0)
    n = counts[1:] - counts[first]
    return np.where(n > 0, (sums[1:] - sums[first]) / np.maximum(n, 1), np.nan)


def _lines_of(run: SeedRun, window: int) -> Callable[[], Iterator[Line]]:
    def lines() -> Iterator[Line]:
        by_step: dict[int, dict[str, float]] = {}
        for name, curve in run.curves.items():
            for step, value in zip(curve.steps, trailing_mean(curve.values, window), strict=True):
                by_step.setdefault(int(step), {})[name] = float(value)
        return (Line(step, 0, by_step[step]) for step in sorted(by_step))

    return lines
