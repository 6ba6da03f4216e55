"""d3rlpy's `metrics`: evaluators by its names, called with an algorithm and what it is trained on, which give a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.judging import scorers
from d3ray.algos.judging.scorers import compare_continuous_action_diff, compare_discrete_action_match

from .dataset import opened


class _Evaluator:
    """A scorer's number, with its own sign, of given episodes or of the data that are trained on."""

    def __init__(self, scorer: Any, episodes: Any = None) -> None:
        self._scorer, self._episodes = scorer, episodes

    def __call__(self, algo: Any, dataset: Any) -> float:
        return self._scorer.sign * float(self._scorer(algo, opened(dataset if self._episodes is None else self._episodes)))


def _of(scorer: Any) -> Callable[..., _Evaluator]:
    def make(episodes: Any = None) -> _Evaluator:
        return _Evaluator(scorer, episodes)

    make.__doc__ = scorer.name
    return make


TDErrorEvaluator = _of(scorers.td_error_scorer)
DiscountedSumOfAdvantageEvaluator = _of(scorers.discounted_sum_of_advantage_scorer)
AverageValueEstimationEvaluator = _of(scorers.average_value_estimation_scorer)
InitialStateValueEstimationEvaluator = _of(scorers.initial_state_value_estimation_scorer)
ContinuousActionDiffEvaluator = _of(scorers.continuous_action_diff_scorer)
DiscreteActionMatchEvaluator = _of(scorers.discrete_action_match_scorer)


def SoftOPCEvaluator(return_threshold: float, episodes: Any = None) -> _Evaluator:  # noqa: N802 - d3rlpy's name
    """Whether critics tell episodes that return so much from others."""
    return _Evaluator(scorers.soft_opc_scorer(return_threshold), episodes)


def CompareContinuousActionDiffEvaluator(base_algo: Any, episodes: Any = None) -> _Evaluator:  # noqa: N802
    """The squared difference from another's actions."""
    return _Evaluator(compare_continuous_action_diff(base_algo), episodes)


def CompareDiscreteActionMatchEvaluator(base_algo: Any, episodes: Any = None) -> _Evaluator:  # noqa: N802
    """How often another takes the same action."""
    return _Evaluator(compare_discrete_action_match(base_algo), episodes)


class EnvironmentEvaluator:
    """The mean return of episodes in an environment."""

    def __init__(self, env: Any, n_trials: int = 10, epsilon: float = 0.0) -> None:
        self._env, self._n_trials, self._epsilon = env, n_trials, epsilon

    def __call__(self, algo: Any, dataset: Any = None) -> float:
        return evaluate(algo.policy(), self._env, episodes=self._n_trials, epsilon=self._epsilon).mean


def evaluate_qlearning_with_environment(algo: Any, env: Any, n_trials: int = 10, epsilon: float = 0.0) -> float:
    """The same as a function."""
    return EnvironmentEvaluator(env, n_trials, epsilon)(algo)
