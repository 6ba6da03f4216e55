"""Numbers as people say them."""

from __future__ import annotations

import math


def count(n: int, what: str) -> str:
    """1 seed, 3 seeds."""
    return f"{n:,} {what}{'s' * (n != 1)}"


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
