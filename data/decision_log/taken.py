"""What of a log a dataset was made of, so that the next version takes what is new: in a few bytes for each writer and file.

Rows of a file stay where they are, and readers see a prefix of what each writer wrote. So it is enough to know how far each writer
had come, and which of the rows before are of episodes that were not complete then, a bit each.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from ..config import Config, setting
from .layout import LogFile

Ends = Mapping[LogFile, int]  # rows up to the end of each file, in the order of files
Place = tuple[int, int]  # the number of a writer's last file, and its rows


class Taken(Config):
    """The state of a log as it was read."""

    decisions: dict[str, Place] = setting({}, "how far each writer had come")
    gone: dict[str, tuple[int, ...]] = setting({}, "numbers of files before that which were missing")
    waiting: dict[str, str] = setting({}, "rows whose episodes were left for later, by file: bits, packed, base64")
    outcomes: dict[str, Place] = setting({}, "how far each writer of outcomes had come")
    versions: tuple[str, ...] = setting((), "versions of the policy, in the order of their numbers in the column info/version")


def settled_rows(taken: Taken, ends: Ends) -> tuple[np.ndarray, np.ndarray]:
    """Tell of each row whether it was there when the log was read before, and whether its episode was done with then: [N] bool."""
    n = max(ends.values(), default=0)
    there, settled = np.zeros(n, bool), np.zeros(n, bool)
    for file, start, stop in spans(ends):
        rows = _rows_before(taken.decisions.get(file.writer), taken.gone.get(file.writer, ()), file, stop - start)
        there[start : start + rows] = settled[start : start + rows] = True
        if (bits := taken.waiting.get(file.stem)) is not None:
            flags = np.unpackbits(np.frombuffer(zlib.decompress(base64.b64decode(bits)), np.uint8))[:rows].astype(bool)
            settled[start : start + len(flags)] &= ~flags
    return there, settled


def known_outcomes(taken: Taken, ends: Ends) -> np.ndarray:
    """Tell of each outcome whether it was there when the log was read before: [N] bool."""
    there = np.zeros(max(ends.values(), default=0), bool)
    for file, start, stop in spans(ends):
        there[start : start + _rows_before(taken.outcomes.get(file.writer), (), file, stop - start)] = True
    return there


def state(before: Taken, ends: Ends, waiting: np.ndarray, outcomes: Ends, versions: tuple[str, ...]) -> Taken:
    """Describe a log that was read: `waiting` [N] tells of which decisions the episodes are left for later."""
    bits = {
        file.stem: base64.b64encode(zlib.compress(np.packbits(waiting[start:stop]).tobytes(), 9)).decode()
        for file, start, stop in spans(ends)
        if waiting[start:stop].any()
    }
    numbers: dict[str, set[int]] = {}
    for file in ends:
        numbers.setdefault(file.writer, set()).add(file.number)
    gone = {writer: tuple(sorted(set(range(max(found))) - found)) for writer, found in numbers.items()}
    return Taken(
        decisions=before.decisions | _places(ends),
        gone={writer: missing for writer, missing in gone.items() if missing},
        waiting=bits,
        outcomes=before.outcomes | _places(outcomes),
        versions=versions,
    )


def spans(ends: Ends) -> list[tuple[LogFile, int, int]]:
    """List each file with its first row and the row behind its last."""
    return [(file, *rows) for file, rows in zip(ends, pairwise([0, *ends.values()]), strict=True)]


def _places(ends: Ends) -> dict[str, Place]:
    return {file.writer: (file.number, stop - start) for file, start, stop in spans(ends)}  # a writer's last file is listed last


def _rows_before(place: Place | None, gone: tuple[int, ...], file: LogFile, rows: int) -> int:
    if place is None or file.number > place[0] or file.number in gone:
        return 0
    return rows if file.number < place[0] else min(rows, place[1])
