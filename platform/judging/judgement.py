"""What came of judging: of each policy its estimates, which one is trusted, and what decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...algos.judging.estimates import CRITIC, ESTIMATORS, Estimate, Estimates
from ...algos.judging.intervals import Interval
from ...algos.judging.selection import Selection

RECORD = "judgement.json"
_STILL = 0.01  # share of the values' size by which they may move and count as settled
TRUSTED = ("WDR", "SNDR", "DM")  # doubly robust where logs allow, else FQE alone


@dataclass(frozen=True)
class Verdict:
    """A policy, and what the logs say of it.

    Attributes:
        label, source, path: As `policies.Kept`'s.
        estimates: By every estimator, with the mean of FQE's seeds.
        by_seed: The direct method's value of each seed of FQE.
        played: Discounted return of each episode that was played, where one was asked for.
        runs: Of FQE's seeds in MLflow.
    """

    label: str
    source: str
    path: str
    estimates: Estimates
    by_seed: tuple[float, ...] = ()
    played: tuple[float, ...] = ()
    runs: tuple[str, ...] = ()

    @property
    def true(self) -> float | None:
        """Mean of what was played."""
        return sum(self.played) / len(self.played) if self.played else None


@dataclass(frozen=True)
class Judgement:
    """What came of judging some policies on one dataset.

    Attributes:
        name: Of the judgement.
        dataset, fingerprint: The logs.
        trusted: The estimator that decides; None where all are refused.
        verdicts: Of the policies, the largest lower bound first.
        settings: What was asked for, JSON.
        selection: What estimates were worth for choosing, where policies were played too.
        folder: Where all of it lies.
    """

    name: str
    dataset: str
    fingerprint: str
    trusted: str | None
    verdicts: tuple[Verdict, ...]
    settings: dict[str, Any]
    selection: Selection | None = None
    folder: str = ""

    @property
    def data(self) -> Estimate:
        """The return of the logs themselves."""
        return self.verdicts[0].estimates.data

    def trusted_of(self, verdict: Verdict) -> Estimate | None:
        """The estimate that decides."""
        return None if self.trusted is None else verdict.estimates[self.trusted]

    def against(self, verdict: Verdict) -> Estimate:
        """What the logs themselves returned, as far as the estimate that decides counts."""
        return self.data if self.trusted is None else verdict.estimates.against(self.trusted)

    def lower(self, verdict: Verdict) -> float | None:
        """Lower bound of the estimate that decides."""
        found = self.trusted_of(verdict)
        return None if found is None or found.interval is None else found.interval[0]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return asdict(self)


def widened(estimates: Estimates, each: Sequence[tuple[float, Interval | None]], name: str = "DM") -> Estimates:
    """The same with an interval that reaches over those of all seeds of FQE, or of "MB" over those of a model's members.

    Resampling episodes does not show what a critic or a model gets wrong; others that began otherwise do, in part.
    """
    found = estimates.rows.get(name)
    if found is None or found.interval is None or not each:
        return estimates
    ends = [interval for _, interval in each if interval is not None]
    within = (min(low for low, _ in ends), max(high for _, high in ends))
    return replace(estimates, rows={**estimates.rows, name: replace(found, interval=within)})


def unsettled(estimates: Estimates, moved: float, size: float, n_steps: int) -> Estimates:
    """The same with what leans on FQE refused, where its values moved too far over the last third of training.

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
    """The same with what leans on FQE refused."""
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


def decides(name: str, one: Estimate) -> bool:
    """Whether an estimate has an interval that a decision can stand on."""
    return one.refused is None and one.interval is not None and one.caveat in (None, CRITIC if name == "DM" else None)


def chosen_estimator(verdicts: Sequence[Verdict]) -> str | None:
    """The first of `TRUSTED` that every policy has, with an interval; else any that all have.

    Where few episodes stand behind weights, as a caveat says, intervals are too narrow to decide by. The direct method's, which
    does not hold the error of values, was widened over seeds of FQE.
    """
    has = [{name for name, one in v.estimates.rows.items() if decides(name, one)} for v in verdicts]
    common = set.intersection(*has) if has else set[str]()
    return next((name for name in (*TRUSTED, *verdicts[0].estimates) if name in common), None)
