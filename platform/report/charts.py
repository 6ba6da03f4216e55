"""Figures of a report: learning curves and losses over seeds, on light and on dark ground; PNG, SVG or PDF.

Colours are those of Okabe and Ito (2008), which people with any kind of colour vision can tell apart; more than
seven lines are told apart by dashes too.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from ...algos.environments.scores import Reference
from ..statistics import FEW
from .series import Panel, Series

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")  # yellow is too pale on white: grey instead
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
_BRIGHTER = {"#0072B2": "#2f93d6", "#56B4E9": "#9ad4f5"}  # on dark ground; the same two in page.css
_WIDTH = 10.0  # inches; shown at 96 pixels an inch, drawn at twice that
_DPI = 192


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


def color_of(style: int, theme: Theme) -> str:
    """The colour of a line's style."""
    color = PALETTE[style % len(PALETTE)]
    return _BRIGHTER.get(color, color) if theme.is_dark else color


def dash_of(style: int) -> Any:
    """The dash pattern of a line's style."""
    return _DASHES[style // len(PALETTE) % len(_DASHES)]


def learning_curves(panels: Sequence[Panel], metric: str, axis: str, theme: Theme) -> Figure:
    """A metric over gradient steps, a panel a task: means with bands, every seed as a thin line, the data's own mean dashed.

    Args:
        panels: At least one, and in one of them a seed that measured the metric.
        metric: Its name.
        axis: What the axis is called.
        theme: Colours of ground and text.
    """
    rows, columns = -(-len(panels) // 2), min(2, len(panels))
    figure, grid = frame(rows, columns, 4.2 if len(panels) == 1 else 3.6, len(panels), theme)
    for k, panel in enumerate(panels):
        axes = grid[k]
        if len(panels) > 1:
            axes.set_title(_short(panel.title, 60), loc="left", fontsize=10.5, color=theme.ink, pad=8, parse_math=False)
        for series in panel.series:
            _draw(axes, series, metric, theme)
        if panel.data_return is not None:
            axes.axhline(panel.data_return, color=theme.muted, lw=1.2, ls=(0, (6, 3)), zorder=1.5)
        if k % columns == 0:
            axes.set_ylabel(axis, color=theme.ink, fontsize=10, labelpad=8, parse_math=False)
        if k >= len(panels) - columns:
            axes.set_xlabel("gradient steps", color=theme.ink, fontsize=10, labelpad=6)
        if panel.reference is not None:
            _normalized_axis(axes, panel.reference, theme)
    return _finished(figure, panels, [metric], theme, data=True)


def losses(panels: Sequence[Panel], metrics: Sequence[str], theme: Theme) -> Figure:
    """Small multiples: each metric of each task in a panel of its own. A scale is logarithmic where values span a factor of 100."""
    cells = [(p, m) for p in panels for m in metrics if any(series.seeds(m) for series in p.series)]
    columns = min(3, len(cells))
    figure, grid = frame(-(-len(cells) // columns), columns, 2.2, len(cells), theme)
    for k, (panel, metric) in enumerate(cells):
        axes = grid[k]
        title = metric.removeprefix("train/").replace("_", " ")
        title = _short(f"{_short(panel.title, 20)}: {title}" if len(panels) > 1 else title, 44)
        axes.set_title(title, loc="left", fontsize=9.5, color=theme.ink, pad=6, parse_math=False)
        for series in panel.series:
            _draw(axes, series, metric, theme)
        _scale(axes, np.concatenate([curve.values for series in panel.series for _, curve, _ in series.seeds(metric)]))
        if k >= len(cells) - columns:
            axes.set_xlabel("gradient steps", color=theme.ink, fontsize=9, labelpad=5)
    return _finished(figure, panels, metrics, theme)


# ---- what is drawn


def _draw(axes: Any, series: Series, metric: str, theme: Theme) -> None:
    color = color_of(series.style, theme)
    found = series.seeds(metric)
    for run, curve, counts in found:
        good = np.isfinite(curve.values)
        alone = int(good.sum()) == 1
        axes.plot(
            curve.steps,
            np.where(good, curve.values, np.nan),
            color=color,
            lw=0.8,
            alpha=0.9 if not counts else 0.45 if len(found) < FEW else 0.28,
            ls="-" if counts else (0, (1, 1.5)),
            marker="o" if alone else None,
            ms=3,
            zorder=2,
        )
        if run.status in ("FAILED", "KILLED") and good.any():
            last = int(np.flatnonzero(good)[-1])
            axes.plot(curve.steps[last], curve.values[last], "x", color=color, ms=7, mew=1.8, zorder=4, clip_on=False)
    if (found := series.band(metric)) is not None and len(found[0]):
        steps, over = found
        if over.what:
            axes.fill_between(steps, over.low, over.high, color=color, alpha=0.16, lw=0, zorder=1.8)
        single = int(np.isfinite(over.mean).sum()) == 1
        axes.plot(steps, over.mean, color=color, lw=2.2, ls=dash_of(series.style), marker="o" if single else None, ms=5, zorder=3)


def _scale(axes: Any, values: np.ndarray) -> None:
    good = values[np.isfinite(values)]
    if len(good) and good.min() > 0 and good.max() > 100 * good.min():
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, place: ""))
        axes.tick_params(axis="y", which="minor", length=0)


def _normalized_axis(axes: Any, reference: Reference, theme: Theme) -> None:
    span = reference.max - reference.min
    other = axes.secondary_yaxis(
        "right", functions=(lambda r: 100 * (r - reference.min) / span, lambda s: reference.min + s * span / 100)
    )
    other.set_ylabel(reference.label, color=theme.ink, fontsize=10, labelpad=10)
    other.tick_params(colors=theme.muted, labelsize=9, length=0, pad=6)
    other.yaxis.set_major_locator(MaxNLocator(5))
    other.spines["right"].set_visible(False)


def _explanation(panels: Sequence[Panel], metrics: Sequence[str]) -> str:
    """What the lines and bands of a figure are: only what is there to be seen."""
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


# ---- frame


def frame(rows: int, columns: int, height: float, used: int, theme: Theme) -> tuple[Figure, list[Any]]:
    """A figure with panels of that height in inches, and its axes row by row. Those beyond `used` stay empty."""
    figure = Figure(figsize=(_WIDTH, rows * height), dpi=_DPI, facecolor=theme.ground)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for one in axes:
        one.set_facecolor(theme.ground)
        one.grid(True, axis="y", color=theme.grid, lw=0.8)
        one.set_axisbelow(True)
        one.tick_params(colors=theme.muted, labelsize=9, length=0, pad=5)
        one.margins(x=0.02)
        for side, spine in one.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(theme.muted)
            spine.set_linewidth(0.8)
        one.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=True))
        one.xaxis.set_major_formatter(FuncFormatter(lambda value, place: _steps(value)))
        one.yaxis.set_major_locator(MaxNLocator(5))
        one.yaxis.set_major_formatter(FuncFormatter(lambda value, place: plain(value)))
    for one in axes[used:]:
        one.set_visible(False)
    return figure, axes


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


def _finished(figure: Figure, panels: Sequence[Panel], metrics: Sequence[str], theme: Theme, *, data: bool = False) -> Figure:
    """The figure of panels with lines, with its legend and what the lines are."""
    handles = [line(s.style, f"{_short(s.label, 90)}  ({_seeds(panels, s.label, metrics)})", theme) for s in _distinct(panels)]
    if data and any(panel.data_return is not None for panel in panels):
        handles.append(Line2D([], [], color=theme.muted, lw=1.2, ls=(0, (6, 3)), label="mean return of the data"))
    return finished(figure, handles, _explanation(panels, metrics), theme)


def line(style: int, label: str, theme: Theme) -> Line2D:
    """An entry of a legend."""
    return Line2D([], [], color=color_of(style, theme), lw=2.2, ls=dash_of(style), label=label)


def _seeds(panels: Sequence[Panel], label: str, metrics: Sequence[str]) -> str:
    """How many seeds count in a line, or in the lines of that label."""
    found = [s.counted(metrics) for panel in panels for s in panel.series if s.label == label]
    low, high, of = min(n for n, _ in found), max(n for n, _ in found), max(of for _, of in found)
    if (low, high) == (of, of):
        return f"{of} seed{'s' * (of != 1)}"
    return f"{low} of {of} seeds" if low == high else f"{low} to {high} of {of} seeds"


def finished(figure: Figure, handles: Sequence[Line2D], explanation: str, theme: Theme) -> Figure:
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


def _distinct(panels: Sequence[Panel]) -> Iterator[Series]:
    seen = set[str]()
    for panel in panels:
        for series in panel.series:
            if series.label not in seen:
                seen.add(series.label)
                yield series


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
