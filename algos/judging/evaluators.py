"""Scorers as evaluators, `(algorithm, epoch) → {name: float}`, under d3rlpy's names; numbers have their own sign here.

    algorithm.fit(train, evaluators={"test": TDErrorEvaluator(test)})        # the metric test/td_error

`Scores` takes several scorers, which then share one walk over the episodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ..base import Algorithm
from ..environments import evaluate
from ..environments.make import AnyEnvironment
from . import scorers
from .comparers import Comparer, compare_continuous_action_diff, compare_discrete_action_match
from .measures import measured
from .scorers import Scorer
from .seen import Data


class Scores:
    """What some scorers measure, by their names.

    Args:
        scorers: Which; comparers too.
        episodes: A dataset or a list of episodes; None: what the algorithm is trained on.
        window_size: Transitions that scorers look at together.
    """

    def __init__(self, scorers: Sequence[Scorer | Comparer], episodes: Data | None = None, window_size: int = 1024) -> None:
        self.scorers, self.episodes, self.window_size = tuple(scorers), episodes, window_size

    def __call__(self, algorithm: Algorithm, epoch: int) -> dict[str, float]:
        """The numbers, errors positive. Raises as the scorers do."""
        data = self._data(algorithm)
        walking = [scorer for scorer in self.scorers if isinstance(scorer, Scorer)]
        found = dict[str, float]()
        if walking:
            first = all(scorer.first for scorer in walking)  # else the first steps are seen among all others
            found |= measured(algorithm, data, {one.name: one.measure() for one in walking}, self.window_size, first=first)
        return found | {one.name: one.sign * one(algorithm, data) for one in self.scorers if not isinstance(one, Scorer)}

    def _data(self, algorithm: Algorithm) -> Data:
        if self.episodes is not None:
            return self.episodes
        trained_on = algorithm.fitted.sources.given
        if not isinstance(trained_on, Dataset):
            raise ConfigError(f"{algorithm.name} is trained on no dataset now: name the episodes that are to be looked at.")
        return trained_on


class TDErrorEvaluator(Scores):
    """E[(Q(s, a) - (r + γ Q(s', π(s'))))²] as `td_error`; see `td_error_scorer`."""

    def __init__(self, episodes: Data | None = None) -> None:
        super().__init__([scorers.td_error_scorer], episodes)


class DiscountedSumOfAdvantageEvaluator(Scores):
    """`discounted_sum_of_advantage`; see `discounted_sum_of_advantage_scorer`."""

    def __init__(self, episodes: Data | None = None) -> None:
        super().__init__([scorers.discounted_sum_of_advantage_scorer], episodes)


class AverageValueEstimationEvaluator(Scores):
    """E[Q(s, π(s))] as `average_value_estimation`."""

    def __init__(self, episodes: Data | None = None) -> None:
        super().__init__([scorers.average_value_estimation_scorer], episodes)


class InitialStateValueEstimationEvaluator(Scores):
    """E[Q(s₀, π(s₀))] as `initial_state_value_estimation`."""

    def __init__(self, episodes: Data | None = None) -> None:
        super().__init__([scorers.initial_state_value_estimation_scorer], episodes)


class SoftOPCEvaluator(Scores):
    """`soft_opc`; see `soft_opc_scorer`."""

    def __init__(self, return_threshold: float, episodes: Data | None = None) -> None:
        super().__init__([scorers.soft_opc_scorer(return_threshold)], episodes)


class ContinuousActionDiffEvaluator(Scores):
    """E[Σ (a - π(s))²] as `continuous_action_diff`."""

    def __init__(self, episodes: Data | None = None) -> None:
        super().__init__([scorers.continuous_action_diff_scorer], episodes)


class DiscreteActionMatchEvaluator(Scores):
    """The share of actions that the policy would have taken too as `discrete_action_match`."""

    def __init__(self, episodes: Data | None = None) -> None:
        super().__init__([scorers.discrete_action_match_scorer], episodes)


class CompareContinuousActionDiffEvaluator(Scores):
    """E[Σ (π(s) - π'(s))²] as `compare_continuous_action_diff`, where π' is another algorithm's policy."""

    def __init__(self, base_algo: Algorithm, episodes: Data | None = None) -> None:
        super().__init__([compare_continuous_action_diff(base_algo)], episodes)


class CompareDiscreteActionMatchEvaluator(Scores):
    """How often another algorithm acts alike as `compare_discrete_action_match`."""

    def __init__(self, base_algo: Algorithm, episodes: Data | None = None) -> None:
        super().__init__([compare_discrete_action_match(base_algo)], episodes)


class EnvironmentEvaluator(evaluate.EnvironmentEvaluator):
    """The return in an environment, with d3rlpy's arguments of `d3ray.algos.environments.evaluate.EnvironmentEvaluator`."""

    def __init__(self, env: AnyEnvironment, n_trials: int = 10, epsilon: float = 0.0) -> None:
        super().__init__(env, episodes=n_trials, epsilon=epsilon)
