"""Curves in a terminal: dots of Braille, eight to a character, or letters where there are no colours to tell lines apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

if TYPE_CHECKING:
    from ...platform.report.series import Mark, Panel

_COLORS = ("blue", "red", "green", "magenta", "yellow", "cyan", "white")
_BRAILLE, _BITS = 0x2800, np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # of a dot, by row and column
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # the edges of a band are small


def panel_text(panel: Panel, metric: str, width: int, height: int, *, colors: bool) -> Iterator[Text]:
    """Draws a panel in `width` columns and `height` rows, axes and legend included; without colours lines are letters."""
    shown = [(series, found) for series in panel.series if (found := _lines([*series.marks(metric)]))]
    title = " · ".join(filter(None, [metric, panel.title]))
    yield Text(title, style="bold" if colors else "")
    yield from plot_text([line for _, lines in shown for line in lines], width, max(height - len(shown) - 3, 4), colors=colors)
    for series, _ in shown:
        n, of = series.counted([metric])
        mark = "━━" if colors or len(shown) == 1 else _LETTERS[series.style % len(_LETTERS)]
        score = series.configuration.score(metric)
        last = "" if score.summary is None else f", {score.summary.mean:,.5g} at step {score.step:,}"
        seeds = f"{n} seed{'s' * (n != 1)}" if n == of else f"{n} of {of} seeds"
        style = _COLORS[series.style % len(_COLORS)] if colors else ""
        yield Text.assemble("  ", (mark, style), f" {series.label}  ({seeds}{last})")


def _lines(marks: Sequence[Mark]) -> list[Mark]:
    """Of a series its mean, with the edges of its band below it; where it has none its seeds."""
    means = [mark for mark in marks if mark.kind == "mean"]
    edges = [replace(one, y=y, kind="uncounted") for one in means for y in (one.low, one.high) if y is not None]
    return [*edges, *means] or [mark for mark in marks if mark.kind != "end"]


def plot_text(lines: Sequence[Mark], width: int, height: int, *, colors: bool) -> Iterator[Text]:
    """Lines over one another with two axes, in `height` + 1 rows. What is not finite is a gap."""
    finite = [np.isfinite(line.y) for line in lines]
    heights = np.concatenate([line.y[good] for line, good in zip(lines, finite, strict=True)] or [np.zeros(0)])
    steps = np.concatenate([line.x for line in lines] or [np.zeros(0)])
    low, high = (float(heights.min()), float(heights.max())) if len(heights) else (0.0, 1.0)
    left, right = (float(steps.min()), float(steps.max())) if len(steps) else (0.0, 1.0)
    ticks = {
        0: f"{high:,.5g}",
        height // 2: f"{high + (low - high) * (height // 2) / (height - 1):,.5g}",
        height - 1: f"{low:,.5g}",
    }
    margin = max(map(len, ticks.values()))
    columns = max(width - margin - 2, 10)
    letters = not colors and len({line.style for line in lines}) > 1
    tall, wide = (1, 1) if letters else (4, 2)  # dots of a character
    dots = np.zeros((height * tall, columns * wide), bool)
    owner, edge = np.full((height, columns), -1), np.zeros((height, columns), bool)
    for line, good in zip(lines, finite, strict=True):
        across = (line.x - left) / ((right - left) or 1.0) * (dots.shape[1] - 1)
        up = (np.where(good, line.y, low) - low) / ((high - low) or 1.0) * (dots.shape[0] - 1)
        if high == low:
            up = np.full(len(line.x), (dots.shape[0] - 1) / 2)
        for rise, column in _joined(across, up, good, 3 if line.kind == "uncounted" else 1):
            row = dots.shape[0] - 1 - rise
            dots[row, column] = True
            place = row // tall, column // wide
            owner[place], edge[place] = line.style, line.kind == "uncounted"
    for row in range(height):
        text = Text(f"{ticks.get(row, ''):>{margin}} ┤" if row in ticks else " " * (margin + 1) + "│")
        for column in range(columns):
            style = int(owner[row, column])
            if style < 0:
                text.append(" ")
            elif letters:
                letter = _LETTERS[style % len(_LETTERS)]
                text.append(letter.lower() if edge[row, column] else letter)
            else:
                cell = dots[row * tall : (row + 1) * tall, column * wide : (column + 1) * wide]
                text.append(chr(_BRAILLE + int(_BITS[cell].sum())), style=_COLORS[style % len(_COLORS)] if colors else "")
        text.rstrip()
        yield text
    first, last = f"{left:,.5g}", f"{right:,.5g} gradient steps"
    yield Text(" " * (margin + 1) + "└" + first + last.rjust(max(columns - len(first), len(last) + 1)))


def _joined(across: np.ndarray, up: np.ndarray, good: np.ndarray, every: int) -> Iterator[tuple[int, int]]:
    """How high and how far right each dot of a line through the good points is, or every so-many-th."""
    for k in np.flatnonzero(good):
        if k + 1 < len(good) and good[k + 1]:
            n = int(max(abs(across[k + 1] - across[k]), abs(up[k + 1] - up[k]))) + 1
            places = np.linspace(0, 1, n + 1)[::every]
            rises, columns = up[k] + places * (up[k + 1] - up[k]), across[k] + places * (across[k + 1] - across[k])
            yield from zip(np.rint(rises).astype(int).tolist(), np.rint(columns).astype(int).tolist(), strict=True)
        elif k == 0 or not good[k - 1]:
            yield round(float(up[k])), round(float(across[k]))
