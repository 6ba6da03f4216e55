"""The figure of learnt models: how errors on held-out episodes grow with the steps ahead, and how sure the models may be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .charts import Theme, draw, line_key, png
from .series import Chart, Mark, Panel, Series

_WORDS = (
    "Left: the error of what a model expects after so many recorded actions, in deviations of the data; 1 (dashed) is about what "
    "the mean of the data is worth. Right: the share of what came that lay in the central part of what was expected; on the dashed "
    "line a model is as sure as it may be, below it too sure. Lines are means over seeds, bands go from least to largest."
)


def model_charts(panels: Sequence[Panel]) -> list[Chart]:
    """Two for each task on which a configuration trained a model that was judged on held-out episodes."""
    found: list[Chart] = []
    for panel, series in _judged(panels):
        title = f"{panel.title}: " if len(_judged(panels)) > 1 else ""
        errors, covered = ([mark for one in series for mark in _marks(one, part)] for part in ("error", "coverage"))
        errors, covered = [*errors, Mark.across(1)], [*covered, Mark(np.array([0, 100]), np.array([0, 1]), kind="rule")]
        ahead: dict[str, Any] = {"log_x": True, "x_ticks": (1, 5, 10, 25), "y_limits": (0, None)}
        inside: dict[str, Any] = {"x_limits": (0, 100), "y_limits": (0, 1)}
        found.append(Chart(errors, f"{title}error on held-out episodes", "steps ahead", **ahead))
        found.append(Chart(covered, f"{title}share that lay inside", "central part of what was expected, %", **inside))
    return found


def model_figure(panels: Sequence[Panel], theme: Theme) -> bytes | None:
    """PNG of them; None where there are none."""
    if not (charts := model_charts(panels)):
        return None
    distinct = {one.label: one.style for _, series in _judged(panels) for one in series}
    return png(draw(charts, [line_key(style, label) for label, style in distinct.items()], _WORDS, theme, columns=2))


def _judged(panels: Sequence[Panel]) -> list[tuple[Panel, list[Series]]]:
    return [(panel, series) for panel in panels if (series := [one for one in panel.series if _told(one, "error")])]


def _told(series: Series, part: str) -> dict[int, list[float]]:
    """The values of seeds where training ended, by the number in the metric's name."""
    found = {int(m[1]): name for name in series.configuration.metrics() if (m := re.fullmatch(rf"holdout/{part}_(\d+)", name))}
    values = {k: list(series.configuration.score(name).values.values()) for k, name in sorted(found.items())}
    return {k: seeds for k, seeds in values.items() if seeds}


def _marks(series: Series, part: str) -> list[Mark]:
    if not (told := _told(series, part)):
        return []
    low, mean, high = (np.array([take(seeds) for seeds in told.values()]) for take in (np.min, np.mean, np.max))
    at = np.array(list(told))
    return [Mark(at, mean, series.style, "mean", low, high), Mark(at, mean, series.style, "point")]
