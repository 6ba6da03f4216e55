"""Where stretches of lines lie in a large CSV file."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from ..arrays import Array

BLOCK = 1 << 24  # bytes that are looked at together


def line_spans(path: Path, stops: list[int], n: int) -> list[tuple[int, int]] | None:
    """Bytes of stretches of rows, in a file with a header and a line a row, from the first to behind the last.

    `stops` has the row behind each stretch, `n` is that of all rows. None where the file has another number of lines, as where some
    are blank.
    """
    wanted, found, lines, size, byte = np.array([0, *stops]), list[Array](), 0, 0, b""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            at = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            inside = wanted[(wanted >= lines) & (wanted < lines + len(at))] - lines  # row r begins behind line end r
            found.append(at[inside] + size + 1)
            lines, size, byte = lines + len(at), size + len(block), block[-1:]
    if byte != b"\n":
        lines += 1
        found.append(np.array([size]))  # the last row ends with the file
    return list(pairwise(np.concatenate(found).tolist())) if lines == n + 1 else None
