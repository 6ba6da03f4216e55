"""A judgement in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from ...algos.judging.estimates import Estimate
from .judgement import Judgement


def said(value: float | None) -> str:
    """A number with four digits; a dash where there is none."""
    return "–" if value is None else f"{value:.4g}"


def within(one: Estimate) -> str:
    """An interval; empty where there is none."""
    return "" if one.interval is None else f"{one.interval[0]:.4g} to {one.interval[1]:.4g}"


def lead(judgement: Judgement) -> str:
    """What was found, in two sentences."""
    n, data = len(judgement.verdicts), judgement.data
    logs = f"The logs of {judgement.dataset!r} returned {said(data.value)} ({within(data)})."
    if judgement.trusted is None:
        one = next(iter(judgement.verdicts[0].estimates.rows.values()))
        return f"{logs} They support no estimate that all policies have: {one.refused or 'none was asked for.'}"
    best = judgement.verdicts[0]
    found = judgement.trusted_of(best)
    assert found is not None
    numbers = f"{said(found.value)} ({within(found)}) by {judgement.trusted}"
    lower, above = judgement.lower(best), data.value
    beats = lower is not None and above is not None and lower > above
    verdict = "above what the logs returned" if beats else "not shown to be above what the logs returned"
    if n == 1:
        return f"{logs} {best.label} is estimated at {numbers}, {verdict}."
    return f"{logs} Of {n} policies {best.label} has the largest lower bound: {numbers}, {verdict}."


def remarks(judgement: Judgement) -> Iterator[str]:
    """What estimates were worth where policies were played."""
    if (found := judgement.selection) is None:
        return
    if found.rank_correlation is not None and found.interval is not None:
        correlation = f"{found.rank_correlation:.2f} ({found.interval[0]:.2f} to {found.interval[1]:.2f})"
        yield f"Rank correlation of {judgement.trusted} with what was played: {correlation}."
    lost = ", ".join(f"{value:.4g} of {k}" for k, value in found.shortfall.items())
    yield f"What is lost to the best policy, where the best of so many with the largest estimates is taken: {lost}."
