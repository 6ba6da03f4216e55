"""The figure of a sweep: the objective of every configuration, by number and against each setting that was searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import NullFormatter, NullLocator

from ..record.results import ConfigurationResult, Results
from ..results.configurations import objective_of
from ..settings.objective import Objective
from .charts import PALETTE, Theme, frame, png

_PANELS = 11  # settings that are drawn, beside the panel by number
_FINISHED, _STOPPED, _BEST, _LINE = PALETTE[0], PALETTE[4], PALETTE[1], PALETTE[2]


def search_figure(results: Sequence[Results], theme: Theme) -> bytes | None:
    """PNG with a row of panels for each sweep; None where no configuration of any has an objective yet."""
    sweeps = [one for one in results if one.sweep and _measured(one.sweep)]
    if not sweeps:
        return None
    cells = [(one, name) for one in sweeps for name in ("", *_searched(one.sweep)[:_PANELS])]
    columns = min(3, len(cells))
    figure, grid = frame(-(-len(cells) // columns), columns, 2.6, len(cells), theme)
    for axes, (one, name) in zip(grid, cells, strict=False):
        objective = objective_of(one.settings)
        title = name or "in the order proposed"
        axes.set_title(
            f"{one.name}: {title}" if len(sweeps) > 1 else title, loc="left", fontsize=9.5, color=theme.ink, parse_math=False
        )
        space = one.settings["search"].get(name, {})
        _draw(axes, _measured(one.sweep), objective, name, space if isinstance(space, Mapping) else {}, theme)
    for axes in grid[: len(cells) : columns]:
        axes.set_ylabel("objective", color=theme.ink, fontsize=9, labelpad=6)
    handles = [
        figure.axes[0].scatter([], [], s=18, color=_FINISHED, label="finished"),
        figure.axes[0].scatter([], [], s=18, color=_STOPPED, marker="v", label="stopped early"),
        figure.axes[0].scatter([], [], s=60, color=_BEST, marker="*", label="the best"),
    ]
    figure.set_layout_engine("constrained", wspace=0.06, hspace=0.1)
    place = "outside upper left"  # room of its own, however few rows of panels there are
    figure.legend(handles=handles, loc=place, ncols=3, frameon=False, fontsize=9, labelcolor=theme.ink, borderaxespad=0.3)
    return png(figure)


def _measured(configurations: Sequence[ConfigurationResult]) -> list[ConfigurationResult]:
    return [one for one in configurations if one.value is not None]


def _searched(configurations: Sequence[ConfigurationResult]) -> list[str]:
    """Settings of which several values were tried."""
    values: dict[str, set[str]] = {}
    for one in configurations:
        for name, value in one.choice.items():
            values.setdefault(name, set()).add(repr(value))
    return [name for name, found in values.items() if len(found) > 1]


def _draw(
    axes: Any,
    configurations: Sequence[ConfigurationResult],
    objective: Objective,
    name: str,
    space: Mapping[str, Any],
    theme: Theme,
) -> None:
    found = [one for one in configurations if not name or name in one.choice]
    heights = np.array([one.value for one in found], np.float64)
    stopped = np.array([one.ended == "stopped" for one in found])
    places: Sequence[Any] = [one.choice[name] if name else one.number for one in found]
    if not all(isinstance(place, (int, float)) and not isinstance(place, bool) for place in places):
        kinds = sorted({str(place) for place in places})
        axes.set_xticks(
            range(len(kinds)), [kind if len(kind) < 24 else f"{kind[:22]}…" for kind in kinds], rotation=30 if len(kinds) > 4 else 0
        )
        axes.set_xlim(-0.6, len(kinds) - 0.4)
        spread = np.random.default_rng(0).uniform(-0.22, 0.22, len(places))  # points of equal kind beside one another
        across = np.array([kinds.index(str(place)) for place in places]) + spread
    else:
        across = np.array(places, np.float64)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if "loguniform" in space:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_minor_formatter(NullFormatter())
    size = float(np.clip(3000 / max(len(found), 1), 3, 22))
    axes.scatter(across[~stopped], heights[~stopped], s=size, color=_FINISHED, alpha=0.7, lw=0, zorder=2, rasterized=True)
    axes.scatter(
        across[stopped], heights[stopped], s=size, color=_STOPPED, alpha=0.6, lw=0, marker="v", zorder=1.9, rasterized=True
    )
    if not name:
        order = [at for at in np.argsort(across) if not stopped[at]]
        best = (np.minimum if objective.direction == "min" else np.maximum).accumulate(heights[order])
        axes.plot(across[order], best, color=_LINE, lw=1.4, drawstyle="steps-post", zorder=3)
    ended = np.flatnonzero(~stopped)
    if len(ended):
        at = ended[(heights[ended].argmin if objective.direction == "min" else heights[ended].argmax)()]
        axes.scatter(across[at], heights[at], s=70, color=_BEST, marker="*", zorder=4, clip_on=False)
    low, high = np.quantile(heights, [0.05, 1.0]) if objective.direction == "max" else np.quantile(heights, [0.0, 0.95])
    if len(heights) > 20 and high > low:  # a few hopeless ones would press all others together
        axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
