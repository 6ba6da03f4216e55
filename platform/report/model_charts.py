"""The figure of learnt models: how errors on held-out episodes grow with the steps ahead, and how sure the models may be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter

from .charts import Theme, color_of, dash_of, finished, frame, line, png
from .series import Panel, Series

_WORDS = (
    "Left: the error of what a model expects after so many recorded actions, in deviations of the data; 1 (dashed) is about what "
    "the mean of the data is worth. Right: the share of what came that lay in the central part of what was expected; on the dashed "
    "line a model is as sure as it may be, below it too sure. Lines are means over seeds, bands go from least to largest."
)
_PARTS = ("error", "coverage")


def model_figure(panels: Sequence[Panel], theme: Theme) -> bytes | None:
    """PNG with two panels for each task; None where no configuration trained a model that was judged on held-out episodes."""
    judged = [(panel, series) for panel in panels if (series := [one for one in panel.series if _told(one, "error")])]
    if not judged:
        return None
    figure, grid = frame(len(judged), 2, 2.6, 2 * len(judged), theme)
    for row, (panel, series) in enumerate(judged):
        for axes, part in zip(grid[2 * row : 2 * row + 2], _PARTS, strict=True):
            for one in series:
                _draw(axes, one, part, theme)
            _set_up(axes, part, panel.title if len(judged) > 1 else "", theme)
    distinct = {one.label: one for _, series in judged for one in series}
    handles = [line(one.style, one.label, theme) for one in distinct.values()]
    return png(finished(figure, handles, _WORDS, theme))


def _told(series: Series, part: str) -> dict[int, list[float]]:
    """The values of seeds where training ended, by the number in the metric's name."""
    found = {int(m[1]): name for name in series.configuration.metrics() if (m := re.fullmatch(rf"holdout/{part}_(\d+)", name))}
    values = {k: list(series.configuration.score(name).values.values()) for k, name in sorted(found.items())}
    return {k: seeds for k, seeds in values.items() if seeds}


def _draw(axes: Any, series: Series, part: str, theme: Theme) -> None:
    if not (told := _told(series, part)):
        return
    x, color = np.array(list(told)), color_of(series.style, theme)
    low, mean, high = (np.array([take(seeds) for seeds in told.values()]) for take in (np.min, np.mean, np.max))
    axes.fill_between(x, low, high, color=color, alpha=0.16, lw=0)
    axes.plot(x, mean, color=color, lw=2.2, ls=dash_of(series.style), marker="o", ms=4)


def _set_up(axes: Any, part: str, title: str, theme: Theme) -> None:
    of_errors = part == "error"
    what = "error on held-out episodes" if of_errors else "share that lay inside"
    axes.set_title(f"{title}: {what}" if title else what, loc="left", fontsize=9.5, color=theme.ink, pad=6, parse_math=False)
    if of_errors:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator([1, 5, 10, 25]))
        axes.xaxis.set_minor_locator(FixedLocator([]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
        axes.axhline(1, color=theme.muted, lw=1.0, ls=(0, (6, 3)), zorder=1)
        axes.set_ylim(bottom=0)
    else:
        axes.plot([0, 100], [0, 1], color=theme.muted, lw=1.0, ls=(0, (6, 3)), zorder=1)
        axes.set_xlim(0, 100)
        axes.set_ylim(0, 1)
    axes.set_xlabel("steps ahead" if of_errors else "central part of what was expected, %", color=theme.ink, fontsize=9, labelpad=5)
