"""Episodes whose arrays have not the rows that their steps need: they are left out by name, and the others are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...errors import DataError

Short = Literal["leave out", "keep"]
MOST = 12  # numbers of episodes that a note names


@dataclass(frozen=True)
class Fault:
    """Why an episode cannot be read.

    Attributes:
        kind: it is "empty", it is "short" of its final observation alone, or its arrays are "unequal".
        detail: what is wrong with it, to be put behind its name.
    """

    kind: Literal["empty", "short", "unequal"]
    detail: str


def fault_of(rows: Mapping[str, int], short: Short) -> Fault | None:
    """Say what is wrong with the `rows` of an episode's arrays, by place ("rewards", "actions/arm"); None: nothing."""
    if not (n := rows["rewards"]):
        return Fault("empty", "there are no steps")
    seen = {place: length for place, length in rows.items() if place.partition("/")[0] == "observations"}
    for place, length in rows.items():
        if place not in seen and length != n:
            return Fault("unequal", f"{place!r} has {length} rows, 'rewards' has {n}")
    is_short = all(length == n for length in seen.values())
    for place, length in seen.items():
        if length != n + 1 and not (is_short and short == "keep"):
            return Fault("short" if is_short else "unequal", f"{place!r} has {length} rows; {n + 1} are due for {n} steps")
    return None


def left_out(faults: Mapping[str, Fault], n: int) -> list[str]:
    """Say how many of the `n` episodes are not read, which, and the way round."""
    notes: list[str] = []
    for kind, why in (
        ("empty", "have no steps"),
        ("short", "have as many observations as steps, where one more is due,"),
        ("unequal", "have arrays of unequal lengths"),
    ):
        which = [number for number, fault in faults.items() if fault.kind == kind]
        if not which:
            continue
        first = f"{faults[which[0]].detail}" if kind == "unequal" else ""
        cure = " options.short=keep reads them, without their final observations." if kind == "short" else ""
        cure = f" In the first {first}; mend them in the file." if first else cure
        notes.append(f"{len(which)} of {n} episodes {why} and were left out: {_some(which)}.{cure}")
    return notes


def none_left(source: str, faults: Mapping[str, Fault]) -> DataError:
    number, fault = next(iter(faults.items()))
    cure = "; options.short=keep reads such episodes, without their final observations" if fault.kind == "short" else ""
    return DataError(f"{source} has no episode that can be read, of {len(faults)}: in episode {number}: {fault.detail}{cure}.")


def _some(numbers: Sequence[str]) -> str:
    more = f" and {len(numbers) - MOST} more" if len(numbers) > MOST else ""
    return ", ".join(numbers[:MOST]) + more
