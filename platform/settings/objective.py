"""What a sweep looks for: one number of a configuration, over its seeds.

`seeds` says how n seeds with values x₁ … xₙ become that number:

    mean         Σ xᵢ / n
    iqm          interquartile mean: the mean without the ⌊n/4⌋ smallest and the ⌊n/4⌋ largest values; below 4 seeds the mean
    lower_bound  x̄ - t · s / √n, with s the sample standard deviation (n - 1) and t the 0.95 quantile of Student's t with n - 1
                 degrees of freedom: the one-sided 95 % confidence bound of the mean. Where the smallest counts, x̄ + t · s / √n.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, Literal

from ...data.config import Config, setting

_LEVEL = 0.95
Mode = Literal["max", "min"]


def caution(metric: str) -> str:
    """Say what a metric by which configurations are compared does not tell of policies; empty if it is their return."""
    last = metric.rpartition("/")[2]
    if metric.startswith("evaluation/"):
        return ""
    if "action" in last:
        says = "how alike a policy acts to whoever made the logs"
    elif "error" in last or "loss" in last:
        says = "how well something learned fits the data"
    else:
        says = "what an algorithm takes its policy to be worth"
    return (
        f"{metric} says {says}, not what a policy returns, and does not rank policies: play the best ones, or judge them by logs."
    )


class Objective(Config):
    """A metric, whether its largest or smallest value is looked for, and how seeds count. `objective: METRIC` is short for it."""

    title: ClassVar[str] = "objective"
    shorthand: ClassVar[str] = "metric"

    metric: str = setting("evaluation/return", "what is looked at: any metric that trials report, as holdout/td_error")
    mode: Mode | None = setting(None, "whether the largest or the smallest is best; null: max, of losses and errors min")
    seeds: Literal["mean", "iqm", "lower_bound"] = setting(
        "mean", "how seeds of a configuration become one number: mean, interquartile mean, or the 95 % confidence bound of the mean"
    )

    @property
    def direction(self) -> Mode:
        """The mode, given or implied by the metric."""
        return self.mode or ("min" if is_cost(self.metric) else "max")

    @property
    def caution(self) -> str:
        """Sentence on what the metric does not tell of policies; empty if it is their return."""
        return caution(self.metric)

    def is_better(self, value: float, than: float) -> bool:
        return value < than if self.direction == "min" else value > than

    def of(self, seeds: Mapping[int, Mapping[str, float]], failed: Collection[int] = ()) -> float | None:
        """The objective of a configuration.

        Args:
            seeds: The latest metrics of each seed.
            failed: Seeds that do not count.

        Returns:
            None where no seed has a finite value of the metric, or, for `lower_bound`, fewer than two have.
        """
        values = [metrics.get(self.metric, math.nan) for seed, metrics in seeds.items() if seed not in failed]
        return self.aggregate(value for value in values if math.isfinite(value))

    def aggregate(self, values: Iterable[float]) -> float | None:
        """One number of finite values, one a seed; None where there are too few of them."""
        ordered = sorted(values)
        if self.seeds == "iqm":
            cut = len(ordered) // 4
            ordered = ordered[cut : len(ordered) - cut]
        n = len(ordered)
        if n < (2 if self.seeds == "lower_bound" else 1):
            return None
        mean = math.fsum(ordered) / n
        if self.seeds != "lower_bound":
            return mean
        from scipy.special import stdtrit

        error = math.sqrt(math.fsum((value - mean) ** 2 for value in ordered) / (n - 1) / n)
        margin = float(stdtrit(n - 1, _LEVEL)) * error
        return mean + margin if self.direction == "min" else mean - margin


def is_better(metric: str, value: float, than: float) -> bool:
    """Return whether `value` is better: larger, or smaller if the metric `is_cost`."""
    return value < than if is_cost(metric) else value > than


_TURNED = ("discounted_sum_of_advantage", "average_value_estimation", "value_estimation_std", "continuous_action_diff")


def is_cost(metric: str) -> bool:
    """Return whether smaller values of a metric are better: losses, errors, costs, and scorers whose sign is turned round."""
    small = "loss" in metric or "error" in metric or metric.startswith("evaluation/cost")
    return small or metric.removeprefix("scorers/") in _TURNED
