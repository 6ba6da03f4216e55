"""Small charts as inline SVG, in the colours of the page's style, so that they follow light and dark and need no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from ...data.doctor import Histogram

WIDTH, HEIGHT = 300, 120  # of the plot, in the units of the view box
_TOP, _BOTTOM = 8, 20
_LABELS = 16  # bars that are labelled one by one


def number(value: float, span: float = 0.0) -> str:
    """A tick: 1,500; 0.25; 3e-05; with a true minus. What is nothing beside the span of its axis is 0."""
    if abs(value) <= 1e-4 * span or value == 0:
        return "0"
    text = f"{value:,.4g}" if 1e-3 <= abs(value) < 1e4 else f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.3g}"
    return text.replace("-", "−")


def histogram(one: Histogram) -> Markup:
    """Bars, those of a second part below in its own colour; values at both ends, or a label for each bar where they are few."""
    counts, n = np.asarray(one.counts, np.float64), len(one.counts)
    second = np.asarray(one.second or [0] * n, np.float64)
    tallest = max(counts.max(initial=0), 1)
    wide, gap = WIDTH / n, min(1.0, 0.12 * WIDTH / n)
    parts: list[str] = []
    for k in range(n):
        x, bar = k * wide + gap / 2, min(wide - gap, 60.0)
        x += (wide - gap - bar) / 2
        for name, base, count in (("bar", second[k], counts[k] - second[k]), ("bar second", 0.0, second[k])):
            if count > 0:
                low, tall = HEIGHT * base / tallest, max(HEIGHT * count / tallest, 0.8)
                parts.append(_rect(name, x, _TOP + HEIGHT - low - tall, bar, tall))
    half = 0.5 if one.whole else 0.0  # bins of whole numbers end half a unit beyond them
    low, high = one.edges[0] + half, one.edges[-1] - half
    labels = one.labels or tuple(number(low + k) for k in range(n if one.whole else 0))
    if labels and n <= _LABELS:
        ticks = [(wide * (k + 0.5), "middle", label) for k, label in enumerate(labels)]
    else:
        places = ((0.0, "start", low), (WIDTH / 2, "middle", (low + high) / 2), (WIDTH, "end", high))
        ticks = [(x, anchor, number(value, high - low)) for x, anchor, value in places]
    said = f"{one.title}: {number(low)} to {number(high)}"
    return _chart(said, [*parts, _axis(), *(_text(*tick) for tick in ticks)])


def line(values: Sequence[float], title: str, left: str, right: str) -> Markup:
    """A line over equal steps, with its lowest and highest value at the side."""
    y = np.asarray(values, np.float64)
    good = np.isfinite(y)
    low, high = (float(y[good].min()), float(y[good].max())) if good.any() else (0.0, 1.0)
    span = high - low or 1.0
    x = np.linspace(0, WIDTH, len(y)) if len(y) > 1 else np.array([WIDTH / 2])
    points = " ".join(f"{a:.1f},{_TOP + HEIGHT * (1 - (b - low) / span):.1f}" for a, b in zip(x[good], y[good], strict=True))
    shape = f'<polyline class="line" points="{points}"/>' if good.sum() > 1 else ""
    ticks = [_text(0, "start", left), _text(WIDTH, "end", right)]
    return _chart(f"{title}: {number(low)} to {number(high)}", [shape, _axis(), *ticks])


def heat_map(counts: Sequence[Sequence[int]], title: str) -> Markup:
    """Counts over a grid, darker where there are more, on a logarithmic scale; the first row is at the bottom."""
    grid = np.log1p(np.asarray(counts, np.float64))
    grid = grid / (grid.max() or 1.0)
    tall, wide = (HEIGHT / grid.shape[0], WIDTH / grid.shape[1])
    parts = [
        _rect("cell", wide * column, _TOP + HEIGHT - tall * (row + 1), wide, tall, f' opacity="{max(grid[row, column], 0.08):.2f}"')
        for row, column in np.argwhere(grid > 0)
    ]
    return _chart(title, [*parts, _axis()])


@dataclass(frozen=True)
class Within:
    """A row of `intervals`: a value, and from where to where it may be."""

    label: str
    value: float
    low: float
    high: float
    mark: float | None = None  # A second value, such as the true one
    strong: bool = False  # whether it is the row that is meant


def intervals(rows: Sequence[Within], title: str, line: Within | None = None) -> Markup:
    """Values with their intervals, one below the other on one axis; what they are compared with is a dashed line in a band."""
    named, wide, tall = 260, 420, 24
    ends = [x for row in (*rows, *([line] if line else [])) for x in (row.low, row.high, row.value, row.mark) if x is not None]
    least, most = min(ends), max(ends)
    span = most - least or max(abs(most), 1.0)
    least, span, height = least - 0.04 * span, 1.08 * span, tall * len(rows)

    def at(value: float) -> float:
        return named + wide * (value - least) / span

    parts = list[str]()
    if line is not None:
        parts.append(_rect("band", at(line.low), 0, max(at(line.high) - at(line.low), 1), height))
        parts.append(f'<path class="against" d="M{at(line.value):.1f} 0V{height}"/>')
    for k, row in enumerate(rows):
        y, name = tall * (k + 0.5), "strong" if row.strong else "weak"
        parts.append(f'<text class="row {name}" x="{named - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(row.label)}</text>')
        parts.append(f'<path class="reach {name}" d="M{at(row.low):.1f} {y:.1f}H{at(row.high):.1f}"/>')
        parts.append(f'<circle class="point {name}" cx="{at(row.value):.1f}" cy="{y:.1f}" r="4"/>')
        if row.mark is not None:
            parts.append(f'<path class="truth" d="M{at(row.mark):.1f} {y - 7:.1f}v14"/>')
    parts.append(f'<path class="axis" d="M{named} {height}H{named + wide}"/>')
    for share, anchor in ((0.04 / 1.08, "start"), (0.5, "middle"), (1.04 / 1.08, "end")):
        value = least + share * span
        parts.append(
            f'<text class="tick" x="{at(value):.1f}" y="{height + 15}" text-anchor="{anchor}">{number(value, span)}</text>'
        )
    box = f"0 0 {named + wide + 10} {height + 22}"
    return Markup(f'<svg class="chart rows" viewBox="{box}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>')


def _chart(title: str, parts: Sequence[str]) -> Markup:
    box = f"0 0 {WIDTH} {_TOP + HEIGHT + _BOTTOM}"
    return Markup(f'<svg class="chart" viewBox="{box}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>')


def _rect(name: str, x: float, y: float, wide: float, tall: float, more: str = "") -> str:
    return f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{wide:.2f}" height="{tall:.2f}"{more}/>'


def _axis() -> str:
    return f'<path class="axis" d="M0 {_TOP + HEIGHT}H{WIDTH}"/>'


def _text(x: float, anchor: str, text: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{_TOP + HEIGHT + 15}" text-anchor="{anchor}">{escape(text)}</text>'
