"""What scorers measure: means over transitions, several of them in one walk over the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from ...data.errors import ConfigError, DataError
from ..learning.estimator import Estimator
from .seen import Data, Seen, walk


class Measure(Protocol):
    """One number of an algorithm on data, as it adds up over a walk."""

    def add(self, seen: Seen) -> None:
        """Takes some more transitions in."""
        ...

    def result(self) -> float:
        """The number. Raises DataError where no transition counts."""
        ...


class Mean:
    """The mean of one number of each transition.

    Args:
        number: Gives it, [B]. Raises ConfigError of an algorithm that has none.
        where: Tells the transitions that count, bool [B]; None: all do.
        none: What is wrong where none counts.
    """

    def __init__(
        self, number: Callable[[Seen], Tensor], where: Callable[[Seen], Tensor] | None = None, none: str = "there is no transition"
    ) -> None:
        self._number, self._where, self._none = number, where, none
        self._sum: Tensor | float = 0.0
        self._n: Tensor | int = 0

    def add(self, seen: Seen) -> None:
        number = self._number(seen).double()
        counts = torch.ones_like(number, dtype=torch.bool) if self._where is None else self._where(seen)
        self._sum, self._n = self._sum + torch.where(counts, number, 0.0).sum(), self._n + counts.sum()

    def result(self) -> float:
        if not int(self._n):
            raise DataError(f"Nothing can be measured: {self._none}.")
        return float(self._sum / self._n)


class SoftOPC:
    """Mean value of the data's actions in successful episodes, less that in all.

    Args:
        threshold: Return from which on an episode is a success.
    """

    def __init__(self, threshold: float) -> None:
        none = f"no episode returns {threshold:g} or more, from where it would be a success"
        self._parts = Mean(_taken, lambda seen: seen.steps.returns >= threshold, none), Mean(_taken)

    def add(self, seen: Seen) -> None:
        for part in self._parts:
            part.add(seen)

    def result(self) -> float:
        success, every = (part.result() for part in self._parts)
        return success - every


def td_error() -> Measure:
    """E[(r + γ Q(s', π(s')) - Q(s, a))²], where one knows what came next."""
    return Mean(
        lambda seen: seen.td_error.square(), lambda seen: seen.steps.followed, "no transition tells which observation followed"
    )


def discounted_sum_of_advantage() -> Measure:
    """E[Σ γᵗ'⁻ᵗ A(sₜ', aₜ')] over t' ≥ t to the episode's end, A(s, a) = Q(s, a) - Q(s, π(s)).

    The advantage of step t' is in the sums of all steps up to it: its weight is 1 + γ + … + γᵗ', and no sum is made backwards.
    """

    def weighted(seen: Seen) -> Tensor:
        gamma, upto = seen.fit.learner.discounts[0], seen.steps.number.double() + 1
        weight = upto if gamma == 1 else (1 - gamma**upto) / (1 - gamma)
        return weight * (seen.taken - seen.best).mean(0).double()

    return Mean(weighted)


def average_value_estimation() -> Measure:
    """E[Q(s, π(s))]."""
    return Mean(_best)


def value_estimation_std() -> Measure:
    """E[std Qᵢ(s, π(s))] over the critics i of an ensemble."""
    return Mean(lambda seen: seen.best.std(0, correction=0))


def initial_state_value_estimation() -> Measure:
    """E[Q(s₀, π(s₀))]."""
    return Mean(_best, lambda seen: seen.steps.number == 0)


def continuous_action_diff() -> Measure:
    """E[Σ (a - π(s))²], summed over the entries of an action."""

    def distance(seen: Seen) -> Tensor:
        if seen.fit.spec.discrete:
            raise ConfigError(f"{seen.fit.algorithm.name} has discrete actions, which have no distance: see how many match.")
        return seen.distance.sum(-1)

    return Mean(distance)


def discrete_action_match() -> Measure:
    """E[a = π(s)]."""

    def match(seen: Seen) -> Tensor:
        if not seen.fit.spec.discrete:
            raise ConfigError(f"{seen.fit.algorithm.name} has continuous actions, which never match: see how far they are apart.")
        return seen.match

    return Mean(match)


@torch.no_grad()
def measured(
    algorithm: Estimator, data: Data, measures: Mapping[str, Measure], window_size: int = 1024, *, first: bool = False
) -> dict[str, float]:
    """What the measures say, by name, of one walk. Arguments and errors as `walk`'s."""
    for seen in walk(algorithm, data, window_size, first=first):
        for measure in measures.values():
            measure.add(seen)
    return {name: measure.result() for name, measure in measures.items()}


def _taken(seen: Seen) -> Tensor:
    return seen.taken.mean(0)


def _best(seen: Seen) -> Tensor:
    return seen.best.mean(0)
