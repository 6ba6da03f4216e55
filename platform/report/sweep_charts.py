"""The figure of a sweep: the objective of every configuration, by number and against each setting that was searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..record.results import ConfigurationResult, Results
from ..results.configurations import objective_of
from ..settings.objective import Objective
from .charts import Theme, draw, line_key, png
from .series import Chart, Mark

_PANELS = 11  # settings that are drawn, beside the panel by number
_FINISHED, _STOPPED, _BEST, _LINE = 0, 4, 1, 2  # colours
_LEGEND = [
    line_key(_FINISHED, "finished", "point"),
    line_key(_STOPPED, "stopped early", "stopped"),
    line_key(_BEST, "the best", "best"),
]


def search_figure(results: Sequence[Results], theme: Theme) -> bytes | None:
    """PNG with a row of panels for each sweep; None where no configuration of any has an objective yet."""
    found: list[Chart] = []
    sweeps = [(one, measured) for one in results if (measured := [each for each in one.sweep if each.value is not None])]
    for one, measured in sweeps:
        for name in ("", *_searched(one.sweep)[:_PANELS]):
            space = one.settings["search"].get(name, {})
            title = name or "in the order proposed"
            title = f"{one.name}: {title}" if len(sweeps) > 1 else title
            is_log = isinstance(space, Mapping) and "loguniform" in space
            found.append(_chart(measured, objective_of(one.settings), name, title, is_log=is_log))
    return png(draw(found, _LEGEND, "", theme)) if found else None


def _searched(configurations: Sequence[ConfigurationResult]) -> list[str]:
    """Settings of which several values were tried."""
    values: dict[str, set[str]] = {}
    for one in configurations:
        for name, value in one.choice.items():
            values.setdefault(name, set()).add(repr(value))
    return [name for name, found in values.items() if len(found) > 1]


def _chart(configurations: Sequence[ConfigurationResult], objective: Objective, name: str, title: str, *, is_log: bool) -> Chart:
    """Configurations by a setting; without a name by their number, with the best so far."""
    found = [one for one in configurations if not name or name in one.choice]
    is_least = objective.direction == "min"
    y, stopped = np.array([one.value for one in found], np.float64), np.array([one.ended == "stopped" for one in found])
    places: Sequence[Any] = [one.choice[name] if name else one.number for one in found]
    about: dict[str, Any] = {}
    if all(isinstance(place, int | float) and not isinstance(place, bool) for place in places):
        x, about["log_x"] = np.array(places, np.float64), is_log
    else:
        kinds = about["kinds"] = sorted({str(place) for place in places})
        about["x_limits"] = (-0.6, len(kinds) - 0.4)
        spread = np.random.default_rng(0).uniform(-0.22, 0.22, len(places))  # points of equal kind beside one another
        x = np.array([kinds.index(str(place)) for place in places]) + spread
    size = float(np.sqrt(np.clip(3000 / max(len(found), 1), 3, 22)))
    marks = [Mark(x[~stopped], y[~stopped], _FINISHED, "point", alpha=0.7, size=size)]
    marks.append(Mark(x[stopped], y[stopped], _STOPPED, "stopped", alpha=0.6, size=size))
    if not name:
        order = [at for at in np.argsort(x) if not stopped[at]]
        marks.append(Mark(x[order], (np.minimum if is_least else np.maximum).accumulate(y[order]), _LINE, stairs=True))
    if len(ended := np.flatnonzero(~stopped)):
        at = ended[(y[ended].argmin if is_least else y[ended].argmax)()]
        marks.append(Mark.at(x[at], y[at], _BEST, "best"))
    low, high = np.quantile(y, [0.0, 0.95] if is_least else [0.05, 1.0])
    if len(y) > 20 and high > low:  # a few hopeless ones would press all others together
        about["y_limits"] = (low - 0.08 * (high - low), high + 0.08 * (high - low))
    return Chart(marks, title, y_name="objective", whole=not name, **about)
