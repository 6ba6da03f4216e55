"""A policy's value from logs, by every estimator that they allow: values, intervals, how much data stands behind them, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import norm

from ...data.errors import ConfigError, did_you_mean
from . import importance
from .intervals import KINDS, TIMES, Interval, Kind, interval_of
from .logs import LOG_PROB, Logs
from .resampling import LEVEL
from .statistic import Statistic, mean_of, ratio_of

LEAST_ESS = 30.0  # effective episodes below which an estimate that stands on weights alone is refused
HALF = 0.5  # share of episodes that count below which weights by step vary too much for intervals: see benchmarks/results/ope.md
_FEWER = "Less than half of the episodes count effectively, and intervals of longer episodes then hold less often than they say."
_WHOLE = "Weights of whole episodes have longer tails than resamples of them show, so the interval holds less often than it says."
CRITIC = "The interval holds what chance in the logs makes of the values, and not what the critic has wrong."
_UNKNOWN = (
    "There is no interval: the logs do not say how wrong the values are, as they have no step that the judged policy takes, or "
    "gamma is 1 and every episode was cut."
)
_APART = 3.0  # standard errors by which the mean ratio of probabilities may differ from 1
_MATTERS = 0.05  # by which it may differ before no interval is believed


@dataclass(frozen=True)
class Estimator:
    """One way to estimate.

    Attributes:
        estimate: Of logs.
        weights: Whether it needs both policies' probabilities.
        values: Whether it needs values of the judged policy.
        leans: Whether it falls back on those values where weights say little, so that few effective episodes do not refuse it.
        caveat: What its interval does not hold, in one sentence.
        modelled: Whether it stands on a model of the dynamics alone.
    """

    estimate: Callable[[Logs], Statistic]
    weights: bool = True
    values: bool = False
    leans: bool = False
    caveat: str | None = None
    modelled: bool = False


_OF_WHOLE = (importance.importance_sampling, importance.weighted_importance_sampling)
MODEL = "MB"
_MODEL = "The interval is that of other beginnings and of the model's members; it does not hold what all members have wrong."
EPISODES: dict[str, Estimator] = {
    "IS": Estimator(importance.importance_sampling),
    "WIS": Estimator(importance.weighted_importance_sampling),
    "PDIS": Estimator(importance.per_decision),
    "WPDIS": Estimator(importance.weighted_per_decision),
    "DM": Estimator(importance.direct_method, weights=False, values=True, leans=True, caveat=CRITIC),
    "DR": Estimator(importance.doubly_robust, values=True),
    "WDR": Estimator(importance.weighted_doubly_robust, values=True),
    "Switch-DR": Estimator(importance.switch_doubly_robust, values=True, leans=True, caveat=CRITIC),
    "MAGIC": Estimator(importance.magic, values=True, leans=True, caveat=CRITIC),
}
BANDITS: dict[str, Estimator] = {
    "IPS": EPISODES["IS"],
    "CIPS": Estimator(importance.clipped_importance_sampling),
    "SNIPS": EPISODES["WIS"],
    "DM": EPISODES["DM"],
    "DR": EPISODES["DR"],
    "SNDR": EPISODES["WDR"],
    "DRos": Estimator(importance.doubly_robust_with_optimistic_shrinkage, values=True, leans=True, caveat=CRITIC),
    "Switch-DR": EPISODES["Switch-DR"],
}
MODELLED = {MODEL: Estimator(importance.in_a_model, weights=False, caveat=_MODEL, modelled=True)}
ESTIMATORS = EPISODES | BANDITS | MODELLED


@dataclass(frozen=True)
class Estimate:
    """The answer of one estimator.

    Attributes:
        value: The discounted return of the judged policy; None where it is refused.
        interval: Where it lies, at the level that was asked for; None where it is refused, or that kind does not hold for it.
        standard_error: Of the value; None where it is refused, or nothing tells it.
        ess: Effective number of episodes behind its weights; None where it has none.
        setting: What the data chose, by name: τ, λ, shares of a mixture.
        caveat: What the interval does not hold, in one sentence; None where nothing is known to be missing.
        refused: Why there is no value, in one sentence; None where there is one.
    """

    value: float | None = None
    interval: Interval | None = None
    standard_error: float | None = None
    ess: float | None = None
    setting: tuple[tuple[str, float], ...] = ()
    caveat: str | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Estimates:
    """The table of all: estimator to `Estimate`.

    Attributes:
        rows: By the estimator's name.
        data: The return of the logged episodes, as the estimate of the behaviour's value.
        continued: The same with what the judged policy is expected to make of episodes that were cut, which estimators that use
            values count as well; None where there is nothing of that.
        kind, level: Of the intervals.
        gamma: γ.
        n_episodes, n_steps: Of the logs.
        estimated_behaviour: Whether the behaviour's probabilities were estimated from the data.
        unsupported: Share of the steps whose logged action the judged policy never takes; None where it has no probabilities.
        warnings: Sentences on the logs as a whole.
    """

    rows: dict[str, Estimate]
    data: Estimate
    kind: Kind
    level: float
    gamma: float
    n_episodes: int
    n_steps: int
    estimated_behaviour: bool
    unsupported: float | None
    warnings: tuple[str, ...]
    continued: Estimate | None = None

    def __getitem__(self, name: str) -> Estimate:
        return self.rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def against(self, name: str) -> Estimate:
        """Give the logs' return as that estimator counts it: with or without what lies beyond where episodes were cut."""
        return self.continued if self.continued is not None and ESTIMATORS[name].values else self.data

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def estimate(
    logs: Logs,
    estimators: Sequence[str] | None = None,
    *,
    interval: Kind = "bootstrap",
    level: float = LEVEL,
    bounds: Interval | None = None,
    least_ess: float = LEAST_ESS,
    times: int = TIMES,
) -> Estimates:
    """The judged policy's value by each estimator, with intervals, and a refusal with its reason where the logs do not support one.

    Args:
        logs: What was logged, and how likely both policies were to act so.
        estimators: Keys of `ESTIMATORS`. None: `BANDITS` where every episode has one step, else `EPISODES`, and `MODELLED` where
            there is a model.
        interval: One of `intervals.KINDS`.
        level: How often the truth shall be within the interval.
        bounds: Smallest and largest value of one episode (a weighted return), for "hoeffding" and "bernstein".
        least_ess: Effective episodes below which estimates that stand on weights alone are refused.
        times: Resamples.

    Raises:
        ConfigError: no estimator or interval has that name, or `level` is not within (0, 1).
    """
    usual = [*(BANDITS if logs.steps.max() == 1 else EPISODES), *(MODELLED if logs.model_value is not None else ())]
    names = usual if estimators is None else list(estimators)
    for name in names:
        if name not in ESTIMATORS:
            raise ConfigError(f"There is no estimator {name!r}{did_you_mean(name, ESTIMATORS)}")
    if interval not in KINDS:
        raise ConfigError(f"There is no interval {interval!r}{did_you_mean(interval, KINDS)}")
    if not 0 < level < 1:
        raise ConfigError(f"level is {level}; it is a number between 0 and 1, such as 0.95.")
    said, doubt = _Intervals(interval, level, bounds, times), _unlike(logs)
    return Estimates(
        rows={name: _estimate(ESTIMATORS[name], logs, said, least_ess, doubt) for name in names},
        data=said.of(mean_of(logs, logs.returns)),
        kind=interval,
        level=level,
        gamma=logs.gamma,
        n_episodes=len(logs.steps),
        n_steps=len(logs.reward),
        estimated_behaviour=logs.estimated,
        unsupported=None if logs.policy_log_prob is None else logs.unsupported,
        warnings=tuple(_warnings(logs, [ESTIMATORS[name] for name in names], doubt)),
        continued=said.of(mean_of(logs, logs.continued)) if logs.final_value is not None and logs.final_value.any() else None,
    )


@dataclass(frozen=True)
class _Intervals:
    kind: Kind
    level: float
    bounds: Interval | None
    times: int

    def of(self, found: Statistic) -> Estimate:
        within = interval_of(found, self.kind, level=self.level, bounds=self.bounds, times=self.times)
        return Estimate(found.value, within, found.standard_error(), found.ess, found.setting)


@dataclass(frozen=True)
class _Unlike:
    """The mean ratio of both policies' probabilities over the steps, and whether it differs from 1 by more than chance."""

    ratio: float
    error: float

    @property
    def shown(self) -> bool:
        return abs(self.ratio - 1) > _APART * self.error

    @property
    def why(self) -> str:
        wrong = "the judged policy does what the data never show", "the behaviour's probabilities are too small"
        return wrong[self.ratio > 1]

    def caveat(self, estimator: Estimator) -> str | None:
        """Say what an interval then does not hold; None where that is little, or of no matter to an estimator."""
        if not self.shown or abs(self.ratio - 1) < _MATTERS or not (estimator.weights or (estimator.values and self.ratio < 1)):
            return None
        return f"Ratios of probabilities average {self.ratio:.3g} in place of 1, as {self.why}: no interval holds what that does."


def _unlike(logs: Logs) -> _Unlike:
    if not logs.has_weights:
        return _Unlike(1.0, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        ratios = ratio_of(logs, logs.total(np.exp(logs.log_ratio)), logs.steps.astype(np.float64))
        return _Unlike(ratios.value, ratios.standard_error())


def _estimate(estimator: Estimator, logs: Logs, said: _Intervals, least_ess: float, doubt: _Unlike) -> Estimate:
    if missing := _missing(estimator, logs):
        return Estimate(refused=missing)
    found = estimator.estimate(logs)
    if not math.isfinite(found.value):
        return Estimate(ess=found.ess, refused="Weights are too large for a number; take an estimator that normalises them.")
    if not (within := logs.possible)[0] <= found.value <= within[1]:
        allowed = f"rewards like those logged allow {within[0]:.4g} to {within[1]:.4g}"
        return Estimate(ess=found.ess, setting=found.setting, refused=f"It comes to {found.value:.4g}, and {allowed}.")
    if found.ess is not None and found.ess < least_ess and not estimator.leans:
        return Estimate(ess=found.ess, setting=found.setting, refused=_too_few(logs, found.ess, least_ess))
    told, several = said.of(found), logs.steps.max() > 1
    told = _with_error_of_values(told, logs, said.level) if estimator.leans else told
    uneven = found.ess is not None and found.ess < HALF * len(logs.steps) and several
    whole = _WHOLE if several and estimator.estimate in _OF_WHOLE else None
    return replace(told, caveat=doubt.caveat(estimator) or told.caveat or estimator.caveat or whole or (_FEWER if uneven else None))


def _with_error_of_values(told: Estimate, logs: Logs, level: float) -> Estimate:
    """An estimate that leans on values, whose interval is that of other episodes, with what these values have wrong."""
    assert told.value is not None
    assert told.standard_error is not None
    if not math.isfinite(logs.value_error):
        return replace(told, interval=None, standard_error=None, caveat=_UNKNOWN)
    wide, off, within = float(norm.ppf((1 + level) / 2)) * logs.value_error, abs(logs.value_bias), told.interval
    if within is not None:
        below, above = (math.hypot(told.value - end, wide) + off for end in within)
        within = told.value - below, told.value + above
    return replace(told, interval=within, standard_error=math.hypot(told.standard_error, logs.value_error))


def _missing(estimator: Estimator, logs: Logs) -> str | None:
    if estimator.weights and not logs.has_weights:
        return _no_weights(logs)
    if estimator.values and not logs.has_values:
        return "There is no estimate of the judged policy's values; train FQE for it."
    if estimator.modelled and logs.model_value is None:
        return "There is no model of the dynamics to follow the judged policy in; name one as model."
    return None


def _no_weights(logs: Logs) -> str:
    if logs.log_prob is None:
        return f"The data have no {LOG_PROB!r}, the behaviour's log-probability of each action; estimate it from the data."
    if not logs.discrete:
        return "The judged policy takes one action in each state and so never exactly the logged one (100 % of the steps)."
    return "The judged policy has no probabilities."


def _too_few(logs: Logs, ess: float, least: float) -> str:
    if len(logs.steps) < least:
        return f"The logs hold {len(logs.steps)} episodes, fewer than {least:g}, from which weights say too little."
    few = f"The weights come to {ess:.1f} effective episodes of {len(logs.steps):,}, fewer than {least:g}"
    if logs.unsupported:
        return f"{few}: in {logs.unsupported:.1%} of the steps the judged policy never takes the logged action."
    return f"{few}: the judged policy acts too differently from the data, or for too long."


def _warnings(logs: Logs, estimators: list[Estimator], doubt: _Unlike) -> Iterator[str]:
    if not logs.has_weights or not any(estimator.weights for estimator in estimators):
        return
    if logs.estimated:
        yield "The behaviour's probabilities were estimated from the data, so weights are as right as that estimate."
    if doubt.shown:
        yield (
            f"Ratios of probabilities average {doubt.ratio:.3g} ± {doubt.error:.2g} over the steps, where 1 is expected: "
            f"{doubt.why}, or they are not those that acted."
        )
    if lost := float(np.bincount(logs.step, logs.discount)[logs.ess_by_step == 0].sum() / logs.discount.sum()):
        step = int((logs.ess_by_step == 0).argmax())
        yield f"From step {step} on, {lost:.1%} of what is discounted, no episode is one that the judged policy could have made."
