"""Scorers as evaluators, `(algorithm, epoch) → {name: float}`, under d3rlpy's names; numbers have their own sign here.

    algorithm.fit(train, evaluators={"test": TDErrorEvaluator(test)})        # the metric test/td_error

`Scores` takes several scorers, which then share one walk over the episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ..base import Algorithm
from ..environments import evaluate
from ..environments.make import AnyEnvironment
from . import scorers
from .scorers import Comparer, Scorer, compare_continuous_action_diff, compare_discrete_action_match, measured
from .seen import Data


class Scores:
    """The means of some scorers, by their names.

    Args:
        scorers: Which; comparers too.
        episodes: A dataset or a list of episodes; None: what the algorithm is trained on.
        window_size: Transitions that scorers look at together.
    """

    def __init__(self, scorers: Sequence[Scorer | Comparer], episodes: Data | None = None, window_size: int = 1024) -> None:
        self.scorers, self.episodes, self.window_size = tuple(scorers), episodes, window_size

    def __call__(self, algorithm: Algorithm, epoch: int) -> dict[str, float]:
        data = self._data(algorithm)
        walking = [scorer for scorer in self.scorers if isinstance(scorer, Scorer)]
        found = measured(algorithm, data, walking, self.window_size) if walking else {}
        return found | {one.name: one.sign * one(algorithm, data) for one in self.scorers if not isinstance(one, Scorer)}

    def _data(self, algorithm: Algorithm) -> Data:
        if self.episodes is not None:
            return self.episodes
        trained_on = algorithm.fitted.sources.given
        if not isinstance(trained_on, Dataset):
            raise ConfigError(f"{algorithm.name} is trained on no dataset now: name the episodes that are to be looked at.")
        return trained_on


class _Score(Scores):
    """The number of one scorer.

    Args:
        episodes: As `Scores`'.
    """

    scorer: ClassVar[Scorer]

    def __init__(self, episodes: Data | None = None) -> None:
        super().__init__([self.scorer], episodes)


class TDErrorEvaluator(_Score):
    """E[(Q(s, a) - (r + γ Q(s', π(s'))))²] as `td_error`; see `td_error_scorer`."""

    scorer = scorers.td_error_scorer


class DiscountedSumOfAdvantageEvaluator(_Score):
    """`discounted_sum_of_advantage`; see `discounted_sum_of_advantage_scorer`."""

    scorer = scorers.discounted_sum_of_advantage_scorer


class AverageValueEstimationEvaluator(_Score):
    """E[Q(s, π(s))] as `average_value_estimation`."""

    scorer = scorers.average_value_estimation_scorer


class InitialStateValueEstimationEvaluator(_Score):
    """E[Q(s₀, π(s₀))] as `initial_state_value_estimation`."""

    scorer = scorers.initial_state_value_estimation_scorer


class ContinuousActionDiffEvaluator(_Score):
    """E[Σ (a - π(s))²] as `continuous_action_diff`."""

    scorer = scorers.continuous_action_diff_scorer


class DiscreteActionMatchEvaluator(_Score):
    """The share of actions that the policy would have taken too as `discrete_action_match`."""

    scorer = scorers.discrete_action_match_scorer


class SoftOPCEvaluator(Scores):
    """`soft_opc`; see `soft_opc_scorer`."""

    def __init__(self, return_threshold: float, episodes: Data | None = None) -> None:
        super().__init__([scorers.soft_opc_scorer(return_threshold)], episodes)


class CompareContinuousActionDiffEvaluator(Scores):
    """E[Σ (π(s) - π'(s))²] as `compare_continuous_action_diff`, where π' is another algorithm's policy."""

    def __init__(self, base_algo: Algorithm, episodes: Data | None = None) -> None:
        super().__init__([compare_continuous_action_diff(base_algo)], episodes)


class CompareDiscreteActionMatchEvaluator(Scores):
    """The share of actions that another algorithm takes alike as `compare_discrete_action_match`."""

    def __init__(self, base_algo: Algorithm, episodes: Data | None = None) -> None:
        super().__init__([compare_discrete_action_match(base_algo)], episodes)


class EnvironmentEvaluator(evaluate.EnvironmentEvaluator):
    """The return in an environment, with d3rlpy's arguments of `d3ray.algos.environments.evaluate.EnvironmentEvaluator`."""

    def __init__(self, env: AnyEnvironment, n_trials: int = 10, epsilon: float = 0.0) -> None:
        super().__init__(env, episodes=n_trials, epsilon=epsilon)
