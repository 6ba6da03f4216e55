"""The doctor's report on a dataset as one page that needs nothing but itself, in the style of the reports on experiments."""

from __future__ import annotations

from collections.abc import Sequence

from ...data.doctor import Report
from . import svg
from .page import render

_STATUS = {"error": "failed", "warning": "stopped", "note": "running"}  # classes of page.css


def doctor_page(
    name: str,
    lead: str,
    report: Report,
    moments: Sequence[tuple[str, Sequence[str]]],
    conditions: Sequence[tuple[str, str]],
    n_transitions: int,
) -> str:
    """The HTML, in which everything that comes from data is escaped; `moments` are mean, std, min and max of each entry as text."""
    n_order = len(report.order)
    return render(
        "report/doctor.html",
        title=name,
        lead=lead,
        report=report,
        moments=moments,
        conditions=conditions,
        n_transitions=n_transitions,
        status=_STATUS,
        returns=svg.histogram(report.returns),
        steps=svg.histogram(report.steps),
        order=svg.line(report.order, "Return in the order of the data", "first episode", "last episode"),
        order_note=f"{svg.number(min(report.order))} to {svg.number(max(report.order))}" if n_order else "",
        rewards=svg.histogram(report.rewards),
        actions=[(one.title, svg.histogram(one)) for one in report.actions],
        observations=[(one.title, svg.histogram(one)) for one in report.observations],
        states=svg.heat_map(report.states, "States along their two widest directions"),
    )
