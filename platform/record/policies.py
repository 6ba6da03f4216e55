"""Policies that were written, played, judged and promoted."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Literal

from pydantic import ConfigDict, Field

from ...algos.judging.resampling import LEVEL
from .base import Record


class Policy(Record):
    """A policy that was written, or a model of the dynamics."""

    target: str
    kind: Literal["onnx", "torchscript", "torch.export", "package"]
    source: str  # which it is, in words
    noun: Literal["policy", "model"]  # what it is


class PolicyAbout(Record):
    """Describe a policy's interface."""

    what: str  # which policy it is, in words
    algorithm: str
    seed: int
    step: int
    observation: str  # its spaces, in a few words
    action: str
    size: int | None  # entries of an observation; None where it is no array
    names: tuple[str, ...] | None  # what these entries are called, in their order; None where that is not known
    remembers: bool  # it has a memory, or draws: one observation does not settle its action
    environment: str | None
    fingerprint: str | None  # of what it learned from; None: not known


class Video(Record):
    """Episodes that a policy played, drawn."""

    file: str
    said: str  # their returns, in words


# ---- promoted


class CostBound(Record):
    """What a policy costs, and may cost."""

    value: float | None  # its cost, or the estimate of it; None where nothing decides
    upper: float | None  # end of its interval
    limit: float  # in the same units

    def broken(self, level: float) -> str:
        """Why the limit is not known to be kept; empty where it is."""
        if self.upper is None:
            return f"no estimate of its cost decides, and it may cost {self.limit:.4g}"
        said = f"the upper bound of its cost, {self.upper:.4g} ({level:.0%}), is above the limit, {self.limit:.4g}"
        return "" if self.upper <= self.limit else said


class Evidence(Record):
    """The evidence by which a model version is promoted or not."""

    version: str
    by: str  # "play", or the estimator's name
    mean: float  # return, or its estimate
    lower: float  # end of its interval
    level: float = LEVEL  # of that interval
    episodes: int | None = None  # that were played, or that the logs hold; None: not known
    ess: float | None = None  # effective episodes behind an estimate's weights; None: it has none
    source: str = ""  # what was played, or the judgement's folder
    cost: CostBound | None = None  # None: there is no limit

    @property
    def behind(self) -> str:
        """How many episodes stand behind it; empty where that is not known."""
        if self.episodes is None:
            return ""
        if self.by == "play":
            return f"over {self.episodes:,} episodes of {self.source} "
        effective = "" if self.ess is None else f", of which {self.ess:,.1f} count effectively,"
        return f"from {self.episodes:,} logged episodes{effective} "


class Promotion(Record):
    """How a promotion went."""

    passed: bool  # whether the candidate is the champion now
    why: str  # what decided it, in a sentence
    candidate: Evidence | None = None  # None where nothing was looked at
    champion: Evidence | None = None  # None where there was none, or nothing was looked at
    above: float | None = None  # what the candidate's lower bound had to be above
    what: str = ""  # that in words, as "what the logs returned"


class Rollback(Record):
    """How going back to an earlier champion went."""

    version: str | None  # the champion now; None: there is no earlier one
    why: str


# ---- judged


class _Kept(Record):
    """A part of `judgement.json`; a later d3ray may keep more, an earlier one less."""

    model_config = ConfigDict(extra="ignore", serialize_by_alias=True, validate_by_name=True)


class Estimated(_Kept):
    """One estimate of a policy's discounted return."""

    value: float | None = None  # None where it is refused
    interval: tuple[float, float] | None = None  # None where it is refused, or that kind does not hold for it
    standard_error: float | None = None
    ess: float | None = None  # effective episodes behind its weights; None: it has none
    setting: tuple[tuple[str, float], ...] = ()  # what the data chose, by name: τ, λ, shares of a mixture
    caveat: str | None = None  # what the interval does not hold
    refused: str | None = None  # why it says nothing


class EstimateTable(_Kept):
    """Map estimators' names to their estimates for one policy."""

    rows: dict[str, Estimated] = Field(default_factory=dict[str, Estimated])
    data: Estimated = Estimated()  # the return of the logs themselves
    continued: Estimated | None = None  # that with what the policy is expected to make of episodes that were cut
    kind: str = "bootstrap"  # of intervals
    level: float = LEVEL
    gamma: float = 0.99
    n_episodes: int = 0  # of the logs
    n_steps: int = 0
    estimated_behaviour: bool = False  # the behaviour's probabilities were estimated from the data
    unsupported: float | None = None  # share of steps whose logged action the policy never takes
    warnings: list[str] = Field(default_factory=list[str])

    def __getitem__(self, name: str) -> Estimated:
        return self.rows[name]

    def __contains__(self, name: object) -> bool:
        return name in self.rows

    def __iter__(self) -> Iterator[str]:  # pyright: ignore[reportIncompatibleMethodOverride]  # pydantic's own gives its fields
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def get(self, name: str) -> Estimated | None:
        return self.rows.get(name)

    def keys(self) -> KeysView[str]:
        return self.rows.keys()

    def values(self) -> ValuesView[Estimated]:
        return self.rows.values()

    def items(self) -> ItemsView[str, Estimated]:
        return self.rows.items()


class Judged(_Kept):
    """A policy, by what logs of another say."""

    label: str
    source: str = ""  # what was named; of a registered model its version
    path: str = ""  # of the package or the ONNX file
    estimates: EstimateTable = EstimateTable()  # of the direct method with the mean of FQE's seeds
    by_seed: tuple[float, ...] = ()  # the direct method's value of each seed of FQE
    costs: EstimateTable | None = None  # of its costs, where there is a limit
    returns: tuple[float, ...] = Field((), alias="played")  # discounted, of each episode that it played
    runs: tuple[str, ...] = ()  # of FQE's seeds in MLflow

    @property
    def played(self) -> float | None:
        """Its mean return, where it was played too."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    @property
    def warnings(self) -> list[str]:
        return self.estimates.warnings


class Worth(_Kept):
    """Rate the estimates for choosing among policies that were also played; see `algos.judging.selection`."""

    rank_correlation: float | None = None
    interval: tuple[float, float] | None = None
    regret: dict[int, float] = Field(default_factory=dict[int, float])
    shortfall: dict[int, float] = Field(default_factory=dict[int, float])
    type_one: float | None = None
    type_two: float | None = None


class Judgement(_Kept):
    """Policies by logs, the largest lower bound first, as `judgement.json` keeps it."""

    name: str = ""
    dataset: str
    fingerprint: str = ""  # of the logs
    trusted: str | None  # the estimator that decides; None where all are refused
    verdicts: tuple[Judged, ...]
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])  # what was asked for
    selection: Worth | None = None
    trusted_cost: str | None = None  # the estimator that decides on costs; None where there is no limit, or all are refused
    cost_limit: float | None = None  # what that may come to, discounted; None as above
    folder: str = ""

    @property
    def policies(self) -> tuple[Judged, ...]:
        return self.verdicts

    @property
    def episodes(self) -> int:
        return self.verdicts[0].estimates.n_episodes

    @property
    def data(self) -> float | None:
        """The return of the logs themselves."""
        return self.verdicts[0].estimates.data.value

    def decisive(self, one: Judged) -> Estimated | None:
        """The estimate of a policy that decides."""
        return None if self.trusted is None else one.estimates[self.trusted]

    def cost(self, one: Judged) -> CostBound | None:
        """What a policy costs by the estimate that decides, and may cost; None: there is no limit."""
        if self.settings.get("cost_limit") is None or one.costs is None:
            return None
        if self.trusted_cost is None or self.cost_limit is None:
            return CostBound(value=None, upper=None, limit=self.settings["cost_limit"])
        found = one.costs[self.trusted_cost]
        return CostBound(value=found.value, upper=found.interval and found.interval[1], limit=self.cost_limit)

    def lower(self, one: Judged) -> float | None:
        """Lower bound of the estimate that decides."""
        found = self.decisive(one)
        return None if found is None or found.interval is None else found.interval[0]
