"""Numbers and spaces as people say them, and tables as CSV."""

from __future__ import annotations

import csv
import io
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..data.uris import without_secrets

if TYPE_CHECKING:
    from ..data.spec import ObservationSpace

POLICY = (
    "experiment (its best seed) or EXPERIMENT/TRIAL of the storage, or the folder of either, runs:/ID, models:/NAME@ALIAS, a "
    "policy package, a saved algorithm, a checkpoint, or d3rlpy's .d3"
)  # what a policy may be named by, wherever one is asked for


NONE = "–"


def number(value: float) -> str:
    """Five figures: 1,556.9; 0.00012; −363.1."""
    if not math.isfinite(value):
        return str(value)
    text = f"{value:,.5g}" if abs(value) < 1e5 else f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.4g}"
    return text.replace("-", "−")


def interval_text(interval: tuple[float, float] | None) -> str:
    """From where to where; a dash for none."""
    return NONE if interval is None else f"{number(interval[0])} to {number(interval[1])}"


def level_name(level: float | None) -> str:
    """Name an interval by its level; None: too few seeds for 95 %."""
    return "interval below 95 %" if level is None else "95 % interval"


def count(n: int, what: str) -> str:
    """1 seed, 3 seeds."""
    return f"{n:,} {what}{'s' * (n != 1)}"


def value_text(value: Any) -> str:
    """A setting's value as prose has it: relu; true; none; 0.1 to 1 is [0.1, 1]; hidden_units [64, 64] and activation relu."""
    if isinstance(value, Mapping):
        pairs = [f"{name} {value_text(one)}" for name, one in value.items()]
        return f"{', '.join(pairs[:-1])} and {pairs[-1]}" if len(pairs) > 1 else "".join(pairs)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def resume_command(folder: str) -> str:
    """Return the command that resumes the experiment in a folder of a storage."""
    place, mark, options = without_secrets(folder).partition("?")
    storage, _, name = place.rpartition("/")
    where = [] if storage == str(Path("d3ray_results").absolute()) else [f"storage={storage}{mark}{options}"]
    return shlex.join(["d3ray", "resume", name, *where])


def rounded(value: float) -> str:
    """Two figures: a plan is not more exact."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 1 - math.floor(math.log10(abs(value)))
    value = round(value, digits)
    return f"{value:,.{max(digits, 0)}f}"


def time_text(seconds: float) -> str:
    """A length of time in words, as exact as a plan is: "40 s", "25 min", "3 h 10 min", "4 days 6 h"."""
    if seconds < 55:
        return f"{max(round(seconds), 1)} s" if seconds < 10 else f"{round(seconds / 5) * 5} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        hours, minutes = divmod(round(minutes / 5) * 5, 60)
        return f"{hours} h" + f" {minutes} min" * (minutes > 0)
    days, hours = divmod(round(minutes / 60), 24)
    return f"{days} days" + f" {hours} h" * (hours > 0)


def size_text(size: float) -> str:
    """Bytes in words: "1.2 GB"."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            return f"{rounded(size)} {unit}" if unit != "B" else f"{size:.0f} B"
        size /= 1000
    raise AssertionError


def space_text(found: ObservationSpace) -> str:
    """A space in a few words, the first names of its entries among them."""
    names = getattr(found, "names", None)
    return _space_text(found) if names is None else f"{_space_text(found)} ({listed(names, 3)})"


def listed(words: Sequence[str], most: int = 6) -> str:
    """a, b, c and 4 more."""
    return ", ".join(words[:most]) + (f" and {len(words) - most:,} more" if len(words) > most else "")


def _space_text(found: ObservationSpace) -> str:
    if found.kind == "discrete":
        return f"one of {found.n}" + (f", from {found.start} on" if found.start else "")
    if found.kind != "box":
        return _compound_text(found)
    shape = " x ".join(map(str, found.shape))
    bounds = found.bounds()
    if bounds is None:
        return f"{shape} {found.dtype}, bounds not known"
    low, high = bounds
    if (low == low.flat[0]).all() and (high == high.flat[0]).all():
        return f"{shape} {found.dtype} from {low.flat[0]:g} to {high.flat[0]:g}"
    return f"{shape} {found.dtype}, each entry with bounds of its own"


def _compound_text(found: ObservationSpace) -> str:
    if found.kind == "dict":
        return "; ".join(f"{key}: {space_text(part)}" for key, part in found.spaces.items())
    if found.kind == "tuple":
        return "; ".join(f"{key}: {space_text(part)}" for key, part in enumerate(found.spaces))
    if found.kind == "multi_discrete":
        start = f", from {', '.join(map(str, found.start))} on" if found.start else ""
        return f"one each of {', '.join(map(str, found.nvec))}{start}"
    assert found.kind == "multi_binary"
    return f"{found.n} zeros and ones"


def csv_text(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """CSV with a heading; numbers in full."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    return text.getvalue()
