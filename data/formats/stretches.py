"""Stretches of whole episodes, in which large files are read."""

from __future__ import annotations

import numpy as np

from .arrays import Array


def stretches(sizes: Array, most: int | None) -> list[slice]:
    """Episodes that follow each other and whose `sizes` (bytes, or rows) come to `most` at most, or a single one; None: all."""
    ends, found, start = np.cumsum(sizes), list[slice](), 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = len(ends) if most is None else max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        found.append(slice(start, stop))
        start = stop
    return found


def row_stretches(end: Array, most: int | None) -> list[slice]:
    """Rows of whole episodes, of which those where `end` [N] is true are the last; the last of all ends one too."""
    after = np.append(np.flatnonzero(end[:-1]) + 1, len(end))
    return [
        slice(int(after[one.start - 1]) if one.start else 0, int(after[one.stop - 1]))
        for one in stretches(np.diff(after, prepend=0), most)
    ]


def where(source: object, start: int, unit: str = "row") -> str:
    """What an error calls a stretch."""
    return f"{source}, from {unit} {start} on" if start else str(source)
