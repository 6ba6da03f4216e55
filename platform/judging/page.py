"""A judgement as one page that needs nothing but itself: estimates with their intervals as pictures, refusals, warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..record.policies import Estimated, Judged, Judgement
from ..report import svg
from ..report.page import render
from .judgement import against
from .words import by_sentence, lead, remarks, said, within

FILE = "judgement.html"


@dataclass(frozen=True)
class _Cell:
    value: str
    within: str
    why: str


@dataclass(frozen=True)
class _Policy:
    label: str
    chart: str
    notes: list[str]


def page(judgement: Judgement) -> str:
    """The HTML; everything that comes from data and settings is escaped."""
    names = list(judgement.verdicts[0].estimates.keys())
    rows = [row for verdict in judgement.verdicts if (row := _row(judgement, verdict)) is not None]
    data, other = judgement.verdicts[0].estimates.data, against(judgement, judgement.verdicts[0])
    level, gamma = f"{judgement.verdicts[0].estimates.level:.0%}", f"{judgement.settings['gamma']:g}"
    return render(
        "judging/page.html",
        title=judgement.name,
        lead=lead(judgement),
        chart=svg.intervals(rows, "Value of each policy with its interval", _against(other)) if rows else "",
        legend=f"{judgement.trusted} with its {level} interval; the dashed line is what the data themselves returned, with its own"
        + ("." if other is data else ", and with what the first policy is expected to make of the episodes that were cut.")
        + (" Upright marks are what was played." if any(v.returns for v in judgement.verdicts) else ""),
        estimators=names,
        table=[(v.label, [_cell(v.estimates[name]) for name in names], said(v.played)) for v in judgement.verdicts],
        played=any(v.returns for v in judgement.verdicts),
        data=_cell(data),
        units=f"Discounted returns, γ = {gamma}, in the units of the data's rewards, with {level} intervals.",
        remarks=list(remarks(judgement)),
        verdicts=[_policy(verdict, against(judgement, verdict)) for verdict in judgement.verdicts],
        conditions=list(_conditions(judgement)),
    )


def _row(judgement: Judgement, verdict: Judged) -> svg.Within | None:
    found = judgement.decisive(verdict)
    if found is None or found.value is None or found.interval is None:
        return None
    return svg.Within(verdict.label, found.value, *found.interval, mark=verdict.played, strong=verdict is judgement.verdicts[0])


def _against(data: Estimated) -> svg.Within | None:
    return None if data.value is None or data.interval is None else svg.Within("data", data.value, *data.interval)


def _cell(one: Estimated) -> _Cell:
    return _Cell("" if one.value is None else said(one.value), within(one), one.refused or "")


def _policy(verdict: Judged, other: Estimated) -> _Policy:
    there = [
        svg.Within(name, one.value, *(one.interval or (one.value, one.value)), mark=verdict.played, strong=one.interval is not None)
        for name, one in verdict.estimates.items()
        if one.value is not None
    ]
    notes = list(verdict.warnings)
    if verdict.by_seed:
        notes.append(f"DM by seed of FQE: {', '.join(map(said, verdict.by_seed))}.")
    rows, n = verdict.estimates.rows, verdict.estimates.n_episodes
    notes += [f"{names} refused: {why}" for why, names in by_sentence({name: one.refused for name, one in rows.items()})]
    notes += [f"{names}: {what}" for what, names in by_sentence({name: one.caveat for name, one in rows.items()})]
    behind = {name: None if one.ess is None or one.value is None else f"{one.ess:.1f}" for name, one in rows.items()}
    notes += [f"{names}: {ess} effective episodes of {n:,}." for ess, names in by_sentence(behind)]
    chart = svg.intervals(there, f"Estimates of {verdict.label}", _against(other)) if there else ""
    return _Policy(verdict.label, chart, notes)


def _conditions(judgement: Judgement) -> Iterator[tuple[str, str]]:
    estimates = judgement.verdicts[0].estimates
    yield "Data", f"{judgement.dataset} ({judgement.fingerprint[:12]})"
    yield "Logs", f"{estimates.n_episodes:,} episodes, {estimates.n_steps:,} steps"
    yield "Behaviour", "estimated from the data" if estimates.estimated_behaviour else "as recorded, or not needed"
    yield "Intervals", f"{estimates.kind}, {estimates.level:.0%}; of DM over all seeds of FQE"
    if judgement.settings["n_steps"]:
        seeds = ", ".join(map(str, judgement.settings["seeds"]))
        at_most = "at most " if estimates.n_steps == estimates.n_episodes else ""
        yield "FQE", f"{at_most}{judgement.settings['n_steps']:,} gradient steps, seeds {seeds}"
    for verdict in judgement.verdicts:
        yield verdict.label, verdict.source
