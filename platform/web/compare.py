"""Experiments side by side: curves, results with intervals, the settings in which they differ. The address says which."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ...data.errors import ConfigError, DataError
from .. import api as d3ray
from ..record.results import ConfigurationResult, Results
from .long_work import takes_long
from .site import At, Site, as_cell

router = APIRouter(prefix="/compare")
WIDTH, HEIGHT = 100.0, 40.0  # of the drawing, in its own units
_CELLS = ("experiment", "configuration", "algorithm", "dataset", "metric", "value", "low", "high", "level", "seeds")
_FEWEST, _MOST_AXES = 3, 8  # configurations from which on they are drawn, and settings that are


@dataclass(frozen=True)
class Row:
    of: Results
    result: ConfigurationResult
    settings: dict[str, Any]  # by dotted name

    @property
    def cells(self) -> list[Any]:
        low, high = self.result.interval or (None, None)
        told = (self.of.name, self.result.label, self.result.algorithm, self.result.dataset)
        return [*told, self.of.metric, self.result.value, low, high, self.level, len(self.result.seeds)]

    @property
    def level(self) -> float | None:
        """Of its interval; None: it has none, or one of too few seeds for 95 %."""
        return self.result.level


@dataclass(frozen=True)
class Axis:
    """One of the lines of parallel coordinates: where it stands, and what its ends are called."""

    name: str
    x: float
    low: str
    high: str


@router.get("")
@takes_long
def show(site: At, request: Request) -> Response:
    names, table = _asked(site, request)
    found = differing([row.settings for row in table])
    drawn = [row for row in table if row.result.value is not None]
    searched = differing([row.settings for row in drawn])
    axes, lines = parallel(
        [[*(row.settings.get(key) for key in searched), row.result.value] for row in drawn], [*searched, "value"]
    )
    known = d3ray.list(site.storage, address=site.address)
    labels = [f"{row.of.name} {row.result.label}".strip() for row in drawn]
    drawing = {"axes": axes, "lines": [*zip(labels, lines, strict=False)], "width": WIDTH, "height": HEIGHT}
    told: dict[str, Any] = {
        "names": names,
        "known": known,
        "table": table,
        "differing": found,
        "drawing": drawing,
        "says": _said(site, names),
    }
    return site.page(request, "compare.html", **told)


def _said(site: Site, names: Sequence[str]) -> list[str]:
    """Return the verdicts; empty if there is nothing to compare yet."""
    try:
        return d3ray.verdicts(names, storage=site.storage) if names else []
    except (ConfigError, DataError):
        return []


@router.get("/table.csv")
@takes_long
def table_csv(site: At, request: Request) -> Response:
    """The table, for a spreadsheet, in which no cell of text is a formula."""
    _, table = _asked(site, request)
    found = differing([row.settings for row in table])
    out = io.StringIO()
    write = csv.writer(out)
    write.writerow([*_CELLS, *map(as_cell, found)])
    for row in table:
        write.writerow([as_cell(cell) for cell in [*row.cells, *(row.settings.get(key) for key in found)]])
    headers = {"Content-Disposition": 'attachment; filename="comparison.csv"'}
    return Response(out.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def _asked(site: Site, request: Request) -> tuple[list[str], list[Row]]:
    """Names that the address has, and their configurations. Raises ConfigError: there is no such experiment."""
    names = list(dict.fromkeys(request.query_params.getlist("of")))
    found = [site.watch.handle(name).results() for name in names]
    return names, [Row(one, each, flat(each.settings)) for one in found for each in one.configurations]


def differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Names of settings that are not the same everywhere."""
    keys = dict.fromkeys(key for one in settings for key in one)
    return [key for key in keys if len({json.dumps(one.get(key), default=str) for one in settings}) > 1]


def parallel(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> tuple[list[Axis], list[str]]:
    """Axes, and a line through them for each row, as SVG has its points; none where there are too few to see anything.

    Numbers stand by their size, others in the order in which they come; of more than eight axes the last ones are drawn.
    """
    if len(rows) < _FEWEST or len(names) < 2:
        return [], []
    names, rows = names[-_MOST_AXES:], [row[-_MOST_AXES:] for row in rows]
    axes, heights = list[Axis](), list[list[float]]()
    for k, name in enumerate(names):
        column = [row[k] for row in rows]
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in column):
            order = list(dict.fromkeys(map(str, column)))
            places, ends = [float(order.index(str(value))) for value in column], (order[0], order[-1])
        else:
            places, ends = [float(value) for value in column], (f"{min(column):.4g}", f"{max(column):.4g}")
        low, high = min(places), max(places)
        axes.append(Axis(name, WIDTH * k / (len(names) - 1), *ends))
        heights.append([HEIGHT / 2 if low == high else HEIGHT * (high - place) / (high - low) for place in places])
    points = [[f"{axis.x:.2f},{heights[k][row]:.2f}" for k, axis in enumerate(axes)] for row in range(len(rows))]
    return axes, [" ".join(one) for one in points]


def flat(settings: dict[str, Any], at: str = "") -> dict[str, Any]:
    """Nested settings by dotted name."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{at}{name}.") if isinstance(value, dict) and value else {f"{at}{name}": value}
    return found
