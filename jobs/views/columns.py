"""Numbers and tables in plain text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ...platform.words import NONE, interval_text, number

if TYPE_CHECKING:
    from ...platform.statistics import Summary

__all__ = ["NONE", "aligned", "cell", "interval_text", "mean_text", "number"]

_LETTERS = 28  # of a setting's value


def cell(value: str) -> str:
    """A setting's value, cut where it is long."""
    return value if len(value) <= _LETTERS else f"{value[: _LETTERS - 1]}…"


def mean_text(summary: Summary) -> str:
    """Mean ± standard error; the number alone where there is one seed."""
    error = summary.standard_error
    return number(summary.mean) if error is None else f"{number(summary.mean)} ± {float(f'{error:.2g}'):g}"


def aligned(rows: Sequence[Sequence[str]], indent: str = "", *, right: Collection[int] | None = None) -> Iterator[str]:
    """Rows with their columns under one another: those named to the `right`, None: all but the first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if (k > 0 if right is None else k in right) else "<" for k in range(len(widths))]
    for row in rows:
        yield (indent + "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))).rstrip()
