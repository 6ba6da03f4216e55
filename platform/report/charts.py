"""Charts as pictures, on light and on dark ground; PNG, SVG or PDF.

Colours are those of Okabe and Ito (2008), which people with any kind of colour vision can tell apart; more than
seven lines are told apart by dashes too.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator
from PIL import Image

from ...algos.environments.scores import Reference
from ..statistics import FEW
from .series import Chart, Kind, Mark, Panel, Series

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")  # yellow is too pale on white: grey instead
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
_BRIGHTER = {"#0072B2": "#2f93d6", "#56B4E9": "#9ad4f5"}  # on dark ground; the same two in page.css
_WIDTH = 10.0  # inches; shown at 96 pixels an inch, drawn at twice that
_DPI = 192
_LOOKS: dict[Kind, dict[str, Any]] = {
    "mean": {"lw": 2.2, "zorder": 3},
    "seed": {"lw": 0.8, "ls": "-", "ms": 3, "zorder": 2},
    "uncounted": {"lw": 0.8, "ls": (0, (1, 1.5)), "ms": 3, "zorder": 2},
    "rule": {"lw": 1.2, "ls": (0, (6, 3)), "zorder": 1.5},
    "end": {"ls": "", "marker": "x", "ms": 7, "mew": 1.8, "zorder": 4, "clip_on": False},
    "point": {"ls": "", "marker": "o", "ms": 4.2, "mew": 0, "zorder": 2, "rasterized": True},
    "stopped": {"ls": "", "marker": "v", "ms": 4.2, "mew": 0, "zorder": 1.9, "rasterized": True},
    "best": {"ls": "", "marker": "*", "ms": 11, "mew": 0, "zorder": 4, "clip_on": False},
    "hollow": {"ls": "", "marker": "o", "ms": 5, "mew": 1.5, "zorder": 4, "clip_on": False},
}
Legend = Sequence[tuple[str, Mark]]


@dataclass(frozen=True)
class Theme:
    """Colours of what is not data."""

    ground: str
    ink: str
    muted: str
    grid: str
    is_dark: bool = False


LIGHT = Theme("#ffffff", "#1b1f24", "#5b6470", "#e4e7eb")
DARK = Theme("#14171c", "#e6e9ee", "#9aa4b1", "#2b313a", is_dark=True)
THEMES = {"light": LIGHT, "dark": DARK}


def in_themes(figures: Mapping[str, Callable[[Theme], bytes | None]]) -> dict[str, dict[str, bytes]]:
    """Figures by name and theme, of what draws them; those of which there is nothing to draw are left out."""
    drawn = {name: {theme: draw(colors) for theme, colors in THEMES.items()} for name, draw in figures.items()}
    found = {name: {theme: png for theme, png in pngs.items() if png is not None} for name, pngs in drawn.items()}
    return {name: pngs for name, pngs in found.items() if pngs}


def color_of(style: int | None, theme: Theme) -> str:
    if style is None:
        return theme.muted
    color = PALETTE[style % len(PALETTE)]
    return _BRIGHTER.get(color, color) if theme.is_dark else color


def dash_of(style: int) -> Any:
    return _DASHES[style // len(PALETTE) % len(_DASHES)]


def line_key(style: int | None, label: str, kind: Kind = "mean") -> tuple[str, Mark]:
    return label, Mark(np.zeros(0), np.zeros(0), style, kind)


def learning_curves(panels: Sequence[Panel], metric: str, axis: str, theme: Theme) -> Figure:
    """A metric over gradient steps, a panel a task: means with bands, every seed as a thin line, the data's own mean dashed."""
    several = len(panels) > 1
    found = [panel.chart(metric, _short(panel.title, 60) if several else "", axis) for panel in panels]
    keys = [*_keys(panels, [metric])]
    if any(panel.data_return is not None for panel in panels):
        keys.append(line_key(None, "mean return of the data", "rule"))
    return draw(found, keys, _explanation(panels, [metric]), theme, columns=2, height=3.6 if several else 4.2)


def losses(panels: Sequence[Panel], metrics: Sequence[str], theme: Theme) -> Figure:
    """Small multiples: each metric of each task in a panel of its own. A scale is logarithmic where values span a factor of 100."""
    found: list[Chart] = []
    for panel, metric in ((p, m) for p in panels for m in metrics if any(series.seeds(m) for series in p.series)):
        title = metric.removeprefix("train/").replace("_", " ")
        title = f"{_short(panel.title, 20)}: {title}" if len(panels) > 1 else title
        values = np.concatenate([curve.values for series in panel.series for _, curve, _ in series.seeds(metric)])
        good = values[np.isfinite(values)]
        spans = bool(len(good)) and good.min() > 0 and good.max() > 100 * good.min()
        found.append(replace(panel.chart(metric, _short(title, 44)), log_y=spans))
    return draw(found, _keys(panels, metrics), _explanation(panels, metrics), theme, height=2.2)


def _explanation(panels: Sequence[Panel], metrics: Sequence[str]) -> str:
    """Explain the lines and bands of a figure: only those shown."""
    found = [s.band(m) for p in panels for s in p.series for m in metrics]
    bands = sorted({over.what for one in found if one is not None and (over := one[1]).what}, reverse=True)
    seeds = [(run, counts) for p in panels for s in p.series for m in metrics for run, _, counts in s.seeds(m)]
    words = ["One seed a line."]
    if bands:
        kinds = bands[0] if len(bands) == 1 else f"{bands[0]} where there are fewer than {FEW}, else {bands[1]}"
        words = [f"Thick lines: means over seeds. Bands: {kinds}. Thin lines: single seeds."]
    if any(run.status in ("FAILED", "KILLED") for run, _ in seeds):
        words.append("×: a seed failed or was stopped.")
    if not all(counts for _, counts in seeds):
        words.append("Dotted: not in the mean.")
    return " ".join(words)


def _keys(panels: Sequence[Panel], metrics: Sequence[str]) -> Legend:
    found: dict[str, list[Series]] = {}
    for series in (series for panel in panels for series in panel.series):
        found.setdefault(series.label, []).append(series)
    return [line_key(alike[0].style, f"{_short(label, 90)}  ({_seeds(alike, metrics)})") for label, alike in found.items()]


def _seeds(alike: Sequence[Series], metrics: Sequence[str]) -> str:
    found = [series.counted(metrics) for series in alike]
    low, high, of = min(n for n, _ in found), max(n for n, _ in found), max(of for _, of in found)
    if (low, high) == (of, of):
        return f"{of} seed{'s' * (of != 1)}"
    return f"{low} of {of} seeds" if low == high else f"{low} to {high} of {of} seeds"


# ---- drawing


def draw(charts: Sequence[Chart], legend: Legend, words: str, theme: Theme, *, columns: int = 3, height: float = 2.6) -> Figure:
    """Charts row by row, `height` inches each, below their legend of labels and marks, and above the `words` on what they are."""
    columns = min(columns, len(charts))
    rows = -(-len(charts) // columns)
    figure = Figure(figsize=(_WIDTH, rows * height), dpi=_DPI, facecolor=theme.ground)
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for k, (axes, chart) in enumerate(zip(grid, charts, strict=False)):
        _set_up(axes, chart, theme)
        for mark in chart.marks:
            _draw(axes, mark, theme)
        axes.set(**{f"{name}lim": ends for name, ends in (("x", chart.x_limits), ("y", chart.y_limits)) if ends is not None})
        if k % columns == 0 or charts[k - 1].y_name != chart.y_name:
            axes.set_ylabel(chart.y_name, color=theme.ink, fontsize=9.5, labelpad=7, parse_math=False)
        if k + columns >= len(charts) or charts[k + columns].x_name != chart.x_name:
            axes.set_xlabel(chart.x_name, color=theme.ink, fontsize=9.5, labelpad=6, parse_math=False)
    for axes in grid[len(charts) :]:
        axes.set_visible(False)
    return _finished(figure, [Line2D([], [], **_look(mark, theme), label=label) for label, mark in legend], words, theme)


def _set_up(axes: Any, chart: Chart, theme: Theme) -> None:
    axes.set_facecolor(theme.ground)
    axes.grid(True, axis="y", color=theme.grid, lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.muted, labelsize=9, length=0, pad=5)
    axes.margins(x=0.02)
    for side, spine in axes.spines.items():
        spine.set(visible=side == "bottom", color=theme.muted, linewidth=0.8)
    axes.set_title(chart.title, loc="left", fontsize=9.5, color=theme.ink, pad=6, parse_math=False)
    if chart.kinds:
        axes.set_xticks(range(len(chart.kinds)), [_short(one, 23) for one in chart.kinds], rotation=30 * (len(chart.kinds) > 4))
    elif chart.log_x:
        axes.set_xscale("log")
        axes.xaxis.set(minor_locator=NullLocator(), minor_formatter=NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=chart.whole))
    if not chart.kinds:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: _steps(value)))
    if chart.x_ticks:
        axes.xaxis.set_major_locator(FixedLocator(chart.x_ticks))
    if chart.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="y", which="minor", length=0)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: plain(value)))
    if chart.reference is not None:
        _normalized_axis(axes, chart.reference, theme)


def _normalized_axis(axes: Any, reference: Reference, theme: Theme) -> None:
    span = reference.max - reference.min
    to, back = (lambda r: 100 * (r - reference.min) / span), (lambda s: reference.min + s * span / 100)
    other = axes.secondary_yaxis("right", functions=(to, back))
    other.set_ylabel(reference.label, color=theme.ink, fontsize=9.5, labelpad=10)
    other.tick_params(colors=theme.muted, labelsize=9, length=0, pad=6)
    other.yaxis.set_major_locator(MaxNLocator(5))
    other.spines["right"].set_visible(False)


def _look(mark: Mark, theme: Theme) -> dict[str, Any]:
    dash = {"ls": dash_of(mark.style)} if mark.kind == "mean" and mark.style is not None else {}
    size = {} if mark.size is None else {"ms": mark.size}
    face = {"mfc": theme.ground} if mark.kind == "hollow" else {}
    return {"color": color_of(mark.style, theme), "alpha": mark.alpha, **dash, **_LOOKS[mark.kind], **size, **face}


def _draw(axes: Any, mark: Mark, theme: Theme) -> None:
    look = _look(mark, theme)
    if mark.kind == "rule" and not len(mark.x):
        axes.axhline(mark.y[0], **look)
        return
    good = np.isfinite(mark.y)
    if mark.low is not None and mark.high is not None:
        step = "post" if mark.stairs else None
        axes.fill_between(mark.x, mark.low, mark.high, color=look["color"], alpha=0.16, lw=0, zorder=1.8, step=step)
    if good.sum() == 1:
        look = {"marker": "o", "ms": 5, **look}
    drawn = {"drawstyle": "steps-post"} if mark.stairs else {}
    axes.plot(mark.x, np.where(good, mark.y, np.nan), **look, **drawn)


def _steps(value: float) -> str:
    """Gradient steps in short: 250k, 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _short(text: str, most: int) -> str:
    """A name for a figure, cut where it is too long for its place; one that begins with _ would be left out of a legend."""
    return (text if len(text) <= most else text[: most - 1] + "…").lstrip("_")


def plain(value: float) -> str:
    """A tick's number: 1,500; 0.25; 3e-05."""
    text = f"{value:,.10g}" if abs(value) >= 1e-4 and abs(value) < 1e6 else f"{value:.4g}"
    return text.replace("-", "−")


def _finished(figure: Figure, handles: Sequence[Line2D], explanation: str, theme: Theme) -> Figure:
    """The figure, with room made for a legend above and an explanation below."""
    longest = max((len(str(handle.get_label())) for handle in handles), default=1)
    columns = max(1, min(len(handles), 130 // (longest + 7)))
    words = textwrap.wrap(explanation, 135)
    above, below = 0.2 + 0.24 * -(-len(handles) // columns), 0.2 + 0.17 * len(words)
    tall = figure.get_figheight() + above + below
    figure.set_figheight(tall)
    figure.set_layout_engine("constrained", rect=(0, below / tall, 1, 1 - (above + below) / tall), wspace=0.06, hspace=0.09)
    legend = figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.002, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=9.5,
        labelcolor=theme.ink,
        handlelength=2.2,
        columnspacing=2.4,
        borderaxespad=0.3,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar in a name is a dollar
    figure.text(0.01, 0.08 / tall, "\n".join(words), color=theme.muted, fontsize=8.5, ha="left", va="bottom", linespacing=1.35)
    return figure


def png(figure: Figure) -> bytes:
    """The figure with a palette of 256 colours: a quarter of the bytes, and a page holds each figure twice."""
    figure.canvas.draw()
    canvas: Any = figure.canvas
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).quantize(
        256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
    )
    palette = image.getpalette() or []
    ground = 3 * int(np.asarray(image)[0, 0])
    palette[ground : ground + 3] = (round(255 * part) for part in to_rgb(figure.get_facecolor()))  # exactly the page's own
    image.putpalette(palette)
    file = io.BytesIO()
    image.save(file, format="PNG", optimize=True, dpi=(_DPI, _DPI))
    return file.getvalue()


def image(figure: Figure, ending: str) -> bytes:
    """The figure as a "png", "svg" or "pdf", without a date: the same figure makes the same bytes."""
    if ending == "png":
        return png(figure)
    file = io.BytesIO()
    with rc_context({"svg.hashsalt": "d3ray"}):
        figure.savefig(file, format=ending, metadata={"svg": {"Date": None}, "pdf": {"CreationDate": None}}[ending])
    return file.getvalue()
