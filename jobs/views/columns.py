"""Numbers and tables in plain text."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...platform.statistics import Summary

NONE = "–"


def number(value: float) -> str:
    """Five figures: 1,556.9; 0.00012; −363.1."""
    if not math.isfinite(value):
        return str(value)
    text = f"{value:,.5g}" if abs(value) < 1e5 else f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.4g}"
    return text.replace("-", "−")


def mean_text(summary: Summary) -> str:
    """Mean ± standard error; the number alone where there is one seed."""
    error = summary.standard_error
    return number(summary.mean) if error is None else f"{number(summary.mean)} ± {float(f'{error:.2g}'):g}"


def interval_text(interval: tuple[float, float] | None) -> str:
    """From where to where; a dash for none."""
    return NONE if interval is None else f"{number(interval[0])} to {number(interval[1])}"


def aligned(rows: Sequence[Sequence[str]], indent: str = "", *, right: Collection[int] | None = None) -> Iterator[str]:
    """Rows with their columns under one another: those named to the `right`, None: all but the first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if (k > 0 if right is None else k in right) else "<" for k in range(len(widths))]
    for row in rows:
        yield (indent + "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))).rstrip()
