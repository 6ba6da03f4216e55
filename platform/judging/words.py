"""A judgement in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..record.policies import Estimated, EstimateTable, Judgement
from ..report.svg import number
from .judgement import against, decides


def said(value: float | None) -> str:
    """A number with four digits and a true minus; a dash where there is none."""
    return "–" if value is None else number(value)


def within(one: Estimated) -> str:
    return "" if one.interval is None else f"{number(one.interval[0])} to {number(one.interval[1])}"


def by_sentence(about: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield each sentence and its names, as "IS, WIS"."""
    for sentence in dict.fromkeys(one for one in about.values() if one is not None):
        yield sentence, ", ".join(name for name, one in about.items() if one == sentence)


def table(judgement: Judgement) -> list[list[str]]:
    """Every policy by every estimator: a heading, then rows of six."""
    level = f"{judgement.verdicts[0].estimates.level:.0%}"
    rows = [["policy", "estimator", "value", f"{level} interval", "effective episodes", ""]]
    for verdict in judgement.verdicts:
        label = verdict.label
        for name, one in verdict.estimates.items():
            remark = "decides" if name == judgement.trusted else "refused" if one.refused else "see below" if one.caveat else ""
            ess = "" if one.ess is None else f"{one.ess:,.1f} of {verdict.estimates.n_episodes:,}"
            rows.append([label, name, said(one.value), within(one), ess, remark])
            label = ""
        if verdict.returns:
            rows.append(["", "played", said(verdict.played), "", "", ""])
    return rows


def lead(judgement: Judgement) -> str:
    """State results in two sentences."""
    n, data = len(judgement.verdicts), judgement.verdicts[0].estimates.data
    logs = f"The logs of {judgement.dataset!r} returned {said(data.value)} ({within(data)})."
    if judgement.trusted is None:
        why = next(
            (why for verdict in judgement.verdicts for why in _hindrances(verdict.estimates)), "policies have different ones."
        )
        return f"{logs} They support no estimate to decide by: {why}"
    best = judgement.verdicts[0]
    found = judgement.decisive(best)
    assert found is not None
    numbers = f"{said(found.value)} ({within(found)}) by {judgement.trusted}"
    lower, other = judgement.lower(best), against(judgement, best)
    beats = lower is not None and other.value is not None and lower > other.value
    verdict = f"{'' if beats else 'not shown to be '}above what the logs returned"
    if other is not data:
        verdict += f" with what it is expected to make of the episodes that were cut, {said(other.value)}"
    if n == 1:
        return f"{logs} {best.label} is estimated at {numbers}, {verdict}."
    return f"{logs} Of {n} policies {best.label} has the largest lower bound: {numbers}, {verdict}."


def _hindrances(estimates: EstimateTable) -> Iterator[str]:
    """Why none decides, that of the direct method first, which needs least."""
    for name in sorted(estimates.rows, key=lambda name: name != "DM"):
        if not decides(name, one := estimates.rows[name]):
            yield one.refused or one.caveat or f"{name} has no interval of the kind {estimates.kind}."


def _costs(judgement: Judgement) -> Iterator[str]:
    for one in judgement.verdicts:
        if (cost := judgement.cost(one)) is None:
            continue
        level = one.estimates.level
        if cost.value is None or one.costs is None or judgement.trusted_cost is None:
            yield f"{one.label}: {cost.broken(level)}."
            continue
        found = f"{said(cost.value)} ({within(one.costs[judgement.trusted_cost])}) by {judgement.trusted_cost}"
        kept = "which keeps" if not cost.broken(level) else "whose upper bound does not keep"
        yield f"{one.label} is estimated to cost {found}, discounted, {kept} the limit, {said(cost.limit)}."


def remarks(judgement: Judgement) -> Iterator[str]:
    """Say what policies cost, where there is a limit, and rate estimates against policies' played returns."""
    yield from _costs(judgement)
    if (found := judgement.selection) is None:
        return
    if found.rank_correlation is not None and found.interval is not None:
        correlation = f"{found.rank_correlation:.2f} ({found.interval[0]:.2f} to {found.interval[1]:.2f})".replace("-", "−")
        yield f"Rank correlation of {judgement.trusted} with what was played: {correlation}."
    lost = ", ".join(f"{said(value)} of {k}" for k, value in found.shortfall.items())
    yield f"What is lost to the best policy, where the best of so many with the largest estimates is taken: {lost}."
