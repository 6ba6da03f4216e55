r"""Bands: where a benchmark's numbers have to lie, and whether they do.

A band of a cell's metric comes from the seeds of a run that is trusted. Whether another run of the same protocol, with other seeds,
lies in it is asked with two one-sided t-tests (Schuirmann 1987, J. Pharmacokinet. Biopharm. 15): at level α it does where the
1 - 2α interval of its mean lies within the band. Whoever changes the code has to show that it is equal; few seeds, or seeds
that scatter, do not pass by saying nothing.

The band is m ± s (z √(1/n + 1/k) + w t_{1-α, k-1} / √k): m and s are the mean and standard deviation of the n trusted seeds, k is
how many seeds a run has, z = 5 leaves room for where two means of the same code may fall, and w = 1.5 for a run whose seeds
scatter more than the trusted ones. A score that is larger than ever is no fault: its band has no upper end. Where seeds scatter so
much that the lower end lies below what uniformly random actions return, that return is the end, as long as it is m - s (3 √(1/n +
1/k) + t_{1-α, k-1} / √k) at most, which a run of the same code keeps above: else the score could fall as far as it can and pass.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator
from scipy import stats

from ...data.config import Config, setting
from ...data.errors import ConfigError, did_you_mean

METRICS = ("evaluation/return", "train/td_error", "train/q_value", "train/action_saturation")
SCORES = ("evaluation/return", "evaluation/normalized_return")
_APART, _WIDER = 5.0, 1.5  # z and w
_KEPT = 3.0  # z of where the return of random actions may lie
_LEAST = 1e-3  # of the mean, as the standard deviation of seeds that are all the same

Values = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]  # dataset, algorithm, metric: one value a seed


class Band(Config):
    """Where the mean over seeds of one metric has to lie."""

    low: float | None = setting(None, "least mean; null: none")
    high: float | None = setting(None, "largest mean; null: none")
    mean: float = setting(..., "of the trusted seeds")
    deviation: float = setting(..., "their standard deviation", ge=0)
    seeds: int = setting(..., "how many they were", ge=2)
    chance: float | None = setting(None, "what uniformly random actions return, of a score; null: not played")

    @classmethod
    def around(
        cls, values: Sequence[float], seeds: int, level: float, *, open_above: bool = False, chance: float | None = None
    ) -> Self:
        """The band around trusted values, one a seed and two at least, for runs of so many seeds.

        `chance`: the return of random actions.
        """
        n, mean, deviation = len(values), statistics.fmean(values), statistics.stdev(values)
        scatter = max(deviation, _LEAST * abs(mean))
        apart, half = math.sqrt(1 / n + 1 / seeds), float(stats.t.ppf(1 - level, seeds - 1)) / math.sqrt(seeds)
        reach = _APART * apart + _WIDER * half
        low, high = mean - scatter * reach, None if open_above else mean + scatter * reach
        if chance is not None and low < chance <= mean - scatter * (_KEPT * apart + half):
            low = chance
        return cls(low=low, high=high, mean=mean, deviation=deviation, seeds=n, chance=chance)


class Recorded(Config):
    seeds: tuple[int, ...] = setting(..., "of the trusted run, which later runs should not have")
    date: str = setting(..., "when the bands were written")
    machine: str = setting(..., "processor, CPUs and GPUs of the command")
    versions: dict[str, str] = Field(description="of d3ray, Python and what decides results")


class Bands(Config):
    """The bands of a suite, and the protocol that they hold for."""

    title: ClassVar[str] = "bands"

    protocol: dict[str, Any] = Field(description="what a run must have the same")
    level: float = setting(0.05, "α of each of the two one-sided tests", gt=0, lt=0.5)
    seeds: int = setting(..., "that a run has at least", ge=2)
    recorded: Recorded | None = setting(None, "from which run; null: nobody wrote it down")
    cells: dict[str, dict[str, dict[str, Band]]] = Field(description="bands by dataset, algorithm and metric")

    @model_validator(mode="after")
    def _has_some(self) -> Self:
        if not any(bands for of_data in self.cells.values() for bands in of_data.values()):
            raise ValueError("there is no band in it")
        return self

    @classmethod
    def around(
        cls,
        values: Values,
        protocol: Mapping[str, Any],
        seeds: int,
        level: float = 0.05,
        *,
        chance: Mapping[str, float] | None = None,
        recorded: Recorded | None = None,
    ) -> Self:
        """Bands around a trusted run, of each of `METRICS` that its cells have.

        Raises ConfigError: a cell has no two finite values.
        """
        cells: dict[str, dict[str, dict[str, Band]]] = {}
        for dataset, label, metric, found in _each(values):
            if metric in METRICS:
                if len(found) < 2 or not all(map(math.isfinite, found)):
                    raise ConfigError(f"{label} on {dataset} has no two finite values of {metric}, which a band needs.")
                is_score = metric in SCORES
                least = (chance or {}).get(dataset) if is_score else None
                band = Band.around(found, seeds, level, open_above=is_score, chance=least)
                cells.setdefault(dataset, {}).setdefault(label, {})[metric] = band
        return cls(protocol=dict(protocol), level=level, seeds=seeds, recorded=recorded, cells=cells)

    def check_protocol(self, protocol: Mapping[str, Any]) -> None:
        """Raises ConfigError where a run has another protocol, naming the first difference."""
        for name in dict.fromkeys((*self.protocol, *protocol)):
            if self.protocol.get(name) != protocol.get(name):
                now, then = protocol.get(name), self.protocol.get(name)
                how = "is not the same" if isinstance(now, dict | list) else f"is {now!r}, and was {then!r}"
                raise ConfigError(f"The bands are for another protocol: {name} {how}.")

    def judge(self, values: Values) -> list[Verdict]:
        """Compare a run's values with each band, in the bands' order. Raises ConfigError: no band is for one of its cells."""
        known = [f"{label} on {dataset}" for dataset, of_data in self.cells.items() for label in of_data]
        for dataset, label, _, _ in _each(values):
            if label not in self.cells.get(dataset, {}):
                name = f"{label} on {dataset}"
                raise ConfigError(f"The bands have no cell {name!r}{did_you_mean(name, known)}")
        return [
            Verdict.of(dataset, label, metric, band, values.get(dataset, {}).get(label, {}).get(metric, ()), self)
            for dataset, of_data in self.cells.items()
            for label, bands in of_data.items()
            for metric, band in bands.items()
        ]


@dataclass(frozen=True)
class Verdict:
    dataset: str
    label: str
    metric: str
    band: Band
    mean: float  # over the run's seeds; NaN where none counts
    interval: tuple[float, float]  # 1 - 2α, of the mean
    seeds: int
    reason: str  # why it does not pass; empty where it does

    @classmethod
    def of(cls, dataset: str, label: str, metric: str, band: Band, values: Sequence[float], bands: Bands) -> Self:
        about, n = (dataset, label, metric, band), len(values)
        if n < bands.seeds:
            return cls(*about, math.nan, (math.nan, math.nan), n, f"{n} of {bands.seeds} seeds have it")
        if not all(map(math.isfinite, values)):
            return cls(*about, math.nan, (math.nan, math.nan), n, "a seed has a value that is not finite")
        mean = statistics.fmean(values)
        half = float(stats.t.ppf(1 - bands.level, n - 1)) * statistics.stdev(values) / math.sqrt(n)
        low, high = mean - half, mean + half
        least = -math.inf if band.low is None else band.low
        most = math.inf if band.high is None else band.high
        reason = ""
        if mean < least or mean > most:
            reason = f"lies {'below' if mean < least else 'above'} the band"
        elif low < least:
            reason = "is not shown to lie above the band's lower end"
        elif high > most:
            reason = "is not shown to lie below the band's upper end"
        return cls(*about, mean, (low, high), n, reason)

    def __str__(self) -> str:
        low = "-∞" if self.band.low is None else f"{self.band.low:.4g}"
        high = "∞" if self.band.high is None else f"{self.band.high:.4g}"
        told = "in its band" if self.passes else self.reason
        return f"{self.dataset} {self.label} {self.metric}: {self.mean:.4g} ({self.seeds} seeds), band {low} to {high}: {told}"

    @property
    def passes(self) -> bool:
        return not self.reason


def _each(values: Values) -> Iterable[tuple[str, str, str, Sequence[float]]]:
    for dataset, of_data in values.items():
        for label, metrics in of_data.items():
            for metric, found in metrics.items():
                yield dataset, label, metric, found
