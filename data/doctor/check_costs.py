"""Checks of costs: missing beside a limit, all zero, negative, or above the limit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..storage.costs import COST
from .findings import Finding, found
from .survey import Survey

_ENOUGH = 0.1  # share of episodes within the limit from which on the others are only noted


def costs_missing(survey: Survey, limit: float | None) -> Iterator[Finding]:
    if limit is not None and survey.costs is None:
        yield found("costs_missing", f"An episode may cost {limit:g}, and there is no column 'cost'.", limit=limit)


def costs_odd(survey: Survey) -> Iterator[Finding]:
    """Find costs that are all zero, and such as are negative."""
    if survey.costs is None or (moments := survey.columns[COST].moments) is None:
        return
    low, high, n = float(moments.low), float(moments.high), survey.dataset.n_transitions
    if low == high == 0:
        yield found("costs_zero", f"All {n:,} costs are zero.")
    elif low < 0:
        yield found("costs_negative", f"Costs lie between {low:.4g} and {high:.4g}.", lowest=low)


def costs_above_limit(survey: Survey, limit: float | None) -> Iterator[Finding]:
    if limit is None or survey.costs is None or not np.isfinite(survey.costs).all():
        return
    above, n = int(np.count_nonzero(survey.costs > limit)), len(survey.costs)
    if above:
        share = above / n
        sentence = (
            f"{above:,} of {n:,} episodes ({share:.0%}) cost more than {limit:g}: {survey.costs.mean():,.4g} in the mean, "
            f"{survey.costs.min():,.4g} at least and {survey.costs.max():,.4g} at most."
        )
        severity = "note" if 1 - share >= _ENOUGH else None
        yield found("costs_above_limit", sentence, severity=severity, share=share, mean=float(survey.costs.mean()))
