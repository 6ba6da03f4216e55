"""Small charts as inline SVG, in the colours of the page's style, so that they follow light and dark and need no file."""

from __future__ import annotations

from collections.abc import Sequence

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


def _chart(title: str, parts: Sequence[str]) -> Markup:
    box = f"0 0 {WIDTH} {_TOP + HEIGHT + _BOTTOM}"
    return Markup(f'<svg class="chart" viewBox="{box}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>')


def _rect(name: str, x: float, y: float, wide: float, tall: float, more: str = "") -> str:
    return f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{wide:.2f}" height="{tall:.2f}"{more}/>'


def _axis() -> str:
    return f'<path class="axis" d="M0 {_TOP + HEIGHT}H{WIDTH}"/>'


def _text(x: float, anchor: str, text: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{_TOP + HEIGHT + 15}" text-anchor="{anchor}">{escape(text)}</text>'
