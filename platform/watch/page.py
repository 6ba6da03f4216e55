"""A look at a log as one page that needs nothing but itself."""

from __future__ import annotations

from datetime import UTC, datetime

from ..record.watch import Changed, Watched
from ..report import svg
from ..report.page import render

FILE = "watch.html"
_MOST = 40  # columns in the table


def page(found: Watched) -> str:
    """The HTML; everything that comes from the log is escaped."""
    rows = [
        svg.Within(moment(one.begin), one.mean, *(one.interval or (one.mean, one.mean)), strong=one is found.returns[-1])
        for one in found.returns
    ]
    changed = [one for one in found.drift if one.shown]
    return render(
        "watch/page.html",
        title=found.policy,
        lead=lead(found),
        found=found,
        moment=moment,
        chart=svg.intervals(rows, "Mean return of the episodes that began then, with its interval") if rows else "",
        changed=changed[:_MOST],
        same=[one for one in found.drift if not one.shown][: max(0, _MOST - len(changed))],
        left_out=max(0, len(found.drift) - _MOST),
        chance=chance,
    )


def lead(found: Watched) -> str:
    """Say what was found in a sentence or two."""
    if not found.traffic:
        return "Nothing was decided yet."
    if found.alarms:
        return " ".join(one.why for one in found.alarms)
    seen = f"compared with {found.compared[0]:,} episodes of {found.reference}" if found.compared[1] else "compared with nothing"
    return f"No alarm: {found.compared[1]:,} of the newest episodes {seen}."


def moment(seconds: float) -> str:
    """A time in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def chance(one: Changed) -> str:
    return "≤ 0.001" if one.p <= 0.001 else f"{one.p:.3f}"
