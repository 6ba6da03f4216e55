"""Which estimates are believed, and which one decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...algos.judging.estimates import CRITIC, ESTIMATORS, Estimate, Estimates
from ...algos.judging.intervals import Interval
from ..record.policies import Estimated, EstimateTable, Judged, Judgement

RECORD = "judgement.json"
_STILL = 0.01  # share of the values' size by which they may move and count as settled
TRUSTED = ("WDR", "SNDR", "DM")  # doubly robust where logs allow, else FQE alone


def against(judgement: Judgement, one: Judged) -> Estimated:
    """Return the logs' own return that the deciding estimate is compared with: see `Estimates.against`."""
    table, name = one.estimates, judgement.trusted
    if name is None:
        return judgement.verdicts[0].estimates.data
    return table.continued if table.continued is not None and ESTIMATORS[name].values else table.data


def widened(estimates: Estimates, each: Sequence[tuple[float, Interval | None]], name: str = "DM") -> Estimates:
    """Widen an interval to cover those of all seeds of FQE, or of all members of the model for "MB".

    Resampling episodes does not show what a critic or a model gets wrong; others that began otherwise do, in part.
    """
    found = estimates.rows.get(name)
    if found is None or found.interval is None or not each:
        return estimates
    ends = [interval for _, interval in each if interval is not None]
    within = (min(low for low, _ in ends), max(high for _, high in ends))
    return replace(estimates, rows={**estimates.rows, name: replace(found, interval=within)})


def unsettled(estimates: Estimates, moved: float, size: float, n_steps: int) -> Estimates:
    """Refuse estimates that rely on FQE if its values moved too far over the last third of training.

    Too far is half as far as the direct method's interval is wide: what goes on moving has not come to where it goes. A hundredth
    of the values' size is not: where all episodes begin alike and end alike, the interval is next to a point.
    """
    found = estimates.rows.get("DM")
    if found is None or found.interval is None or moved <= max((found.interval[1] - found.interval[0]) / 2, _STILL * size):
        return estimates
    return unleaned(
        estimates,
        f"FQE has not settled: its values moved by {moved:.4g} over the last third of {n_steps:,} steps; set a larger n_steps.",
    )


def unleaned(estimates: Estimates, why: str) -> Estimates:
    """Refuse estimates that rely on FQE."""
    leaning = {name: Estimate(ess=one.ess, refused=why) for name, one in estimates.rows.items() if ESTIMATORS[name].leans}
    return replace(estimates, rows={**estimates.rows, **leaning})


def disagreement(estimates: Estimates) -> str | None:
    """Why FQE is not believed: its interval and that of its correction by weights do not meet. None where they do."""
    found = {name: estimates.rows[name].interval for name in TRUSTED if name in estimates.rows}
    direct, corrected = found.pop("DM", None), next(iter(found.items()), None)
    if direct is None or corrected is None or corrected[1] is None:
        return None
    name, (low, high) = corrected[0], corrected[1]
    if direct[0] <= high and low <= direct[1]:
        return None
    return f"The intervals of DM and {name} do not meet, so FQE or the probabilities are wrong: other settings of fqe may help."


def decides(name: str, one: Estimated) -> bool:
    """Return True if an estimate's interval can support a decision."""
    return one.refused is None and one.interval is not None and one.caveat in (None, CRITIC if name == "DM" else None)


def chosen_estimator(tables: Sequence[EstimateTable]) -> str | None:
    """The first of `TRUSTED` that every policy has, with an interval; else any that all have.

    Where few episodes stand behind weights, as a caveat says, intervals are too narrow to decide by. The direct method's, which
    does not hold the error of values, was widened over seeds of FQE.
    """
    has = [{name for name, one in table.items() if decides(name, one)} for table in tables]
    common = set.intersection(*has) if has else set[str]()
    return next((name for name in (*TRUSTED, *tables[0].keys()) if name in common), None)
