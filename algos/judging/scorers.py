"""Scorers: numbers of an algorithm on episodes of which the larger is the better one, as scikit-learn wants them.

`scorer(algorithm, episodes, window_size=1024)`, with d3rlpy's names and formulas (its `metrics/evaluators.py` of 2.8.1 gives the
same with a positive sign). Q is the mean over critics, in the units that `predict_value` gives: those of scaled rewards. π is the
greedy policy; for discrete actions π(s) = argmaxₐ Q(s, a) of a Q-learning one, so that Q(s, π(s)) = maxₐ Q(s, a). Where data tell
which actions are legal, π takes legal ones alone.

Where d3rlpy differs: it drops the last step of every episode that was cut, which here is left out by `td_error_scorer` alone, and
there only if the observation after it was not recorded. It begins a new sum of advantages, and a new initial state, after every
1,024 steps of an episode. Soft OPC without a success is NaN there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from ...data.batch import Batch
from ...data.errors import ConfigError, DataError
from ...data.spec import Environment
from ..base import Algorithm
from ..environments.evaluate import evaluate
from ..environments.make import AnyEnvironment
from ..learning.estimator import Estimator
from .seen import Data, Seen, followed, walk

Number = Callable[[Seen], Tensor]
"""A number of each transition, [B]."""


@dataclass(frozen=True)
class Scorer:
    """The mean of a number over transitions, of which the larger is the better one: a value of scikit-learn's `scoring`.

    Attributes:
        name: Of the metric.
        number: Whose mean it is. Raises ConfigError of an algorithm that has none.
        sign: -1 where the smaller mean is the better one, and the score its negative.
        first: Whether only the first step of each episode is looked at.
        where: The transitions that count, bool [B]; None: all do.
        none: What is wrong where none counts.
        less_all: Whether the mean over all transitions is taken off.
    """

    name: str
    number: Number
    sign: int = 1
    first: bool = False
    where: Number | None = None
    none: str = "there is no transition"
    less_all: bool = False

    def __call__(self, algo: Algorithm, episodes: Data, window_size: int | None = 1024) -> float:
        """The score.

        Args:
            algo: Fitted.
            episodes: A dataset, or a list of episodes; of either only some rows are in memory at once.
            window_size: Transitions that are looked at together. It changes the score by rounding only, but for policies that draw.
                None, where scikit-learn has its targets, is 1,024.

        Raises:
            ConfigError: the algorithm is not trained, learns no values, acts by what came before, or has the other kind of actions.
            DataError: there is no episode, or none that counts; or the spaces are others than those that it was fitted on.
        """
        return self.sign * measured(algo, episodes, [self], 1024 if window_size is None else window_size)[self.name]


@torch.no_grad()
def measured(algorithm: Estimator, data: Data, scorers: Sequence[Scorer], window_size: int = 1024) -> dict[str, float]:
    """Means by the scorers' names, without their signs, of one walk over the data. Arguments and errors as `walk`'s."""
    means = [(_Mean(scorer.none), _Mean(scorer.none)) for scorer in scorers]  # over those that count, and over all
    for seen in walk(algorithm, data, window_size, first=all(scorer.first for scorer in scorers)):
        for scorer, (counted, every) in zip(scorers, means, strict=True):
            number = scorer.number(seen).double()
            counts = torch.ones_like(number, dtype=torch.bool)
            every.add(number, counts)
            counted.add(number, scorer.where(seen) if scorer.where else seen.steps.number == 0 if scorer.first else counts)
    return {
        scorer.name: counted.value() - (every.value() if scorer.less_all else 0.0)
        for scorer, (counted, every) in zip(scorers, means, strict=True)
    }


class _Mean:
    def __init__(self, none: str) -> None:
        self._none = none
        self._sum: Tensor | float = 0.0
        self._n: Tensor | int = 0

    def add(self, number: Tensor, counts: Tensor) -> None:
        self._sum, self._n = self._sum + torch.where(counts, number, 0.0).sum(), self._n + counts.sum()

    def value(self) -> float:
        if not int(self._n):
            raise DataError(f"Nothing can be measured: {self._none}.")
        return float(self._sum / self._n)


def _td_error(seen: Seen) -> Tensor:
    return seen.td_error.square()


def _followed(seen: Seen) -> Tensor:
    return seen.steps.followed


def _taken(seen: Seen) -> Tensor:
    return seen.taken.mean(0)


def _best(seen: Seen) -> Tensor:
    return seen.best.mean(0)


def _spread(seen: Seen) -> Tensor:
    return seen.best.std(0, correction=0)


def _successful(threshold: float, seen: Seen) -> Tensor:
    return seen.steps.returns >= threshold


def _weighted_advantage(seen: Seen) -> Tensor:
    # The advantage of step t' is in the sums of all steps up to it: its weight is 1 + γ + … + γᵗ', and no sum is made backwards.
    gamma, upto = seen.fit.learner.discounts[0], seen.steps.number.double() + 1
    weight = upto if gamma == 1 else (1 - gamma**upto) / (1 - gamma)
    return weight * (seen.taken - seen.best).mean(0).double()


def _distance(seen: Seen) -> Tensor:
    if seen.fit.spec.discrete:
        raise ConfigError(f"{seen.fit.algorithm.name} has discrete actions, which have no distance: see how many match.")
    return seen.distance.sum(-1)


def _match(seen: Seen) -> Tensor:
    if not seen.fit.spec.discrete:
        raise ConfigError(f"{seen.fit.algorithm.name} has continuous actions, which never match: see how far they are apart.")
    return seen.match


td_error_scorer = Scorer("td_error", _td_error, sign=-1, where=_followed, none="no transition tells which observation followed")
"""-E[(Q(s, a) - (r + γ Q(s', π(s'))))²]: how far the critics are from their own goal, one step ahead; overfitted ones are far on
episodes that they were not trained on."""

discounted_sum_of_advantage_scorer = Scorer("discounted_sum_of_advantage", _weighted_advantage, sign=-1)
"""-E[Σ γᵗ'⁻ᵗ (Q(sₜ', aₜ') - Q(sₜ', π(sₜ')))] over t' ≥ t: how much better than the data's the policy's own actions look to its
critics (Murphy, A Generalization Error for Q-Learning, JMLR 6, 2005)."""

average_value_estimation_scorer = Scorer("average_value_estimation", _best, sign=-1)
"""-E[Q(s, π(s))]: the scale of the values; large ones are overestimated."""

value_estimation_std_scorer = Scorer("value_estimation_std", _spread, sign=-1)
"""-E[std of Qᵢ(s, π(s))] over an ensemble's critics i: how much the data leave open. 0 of one critic."""

initial_state_value_estimation_scorer = Scorer("initial_state_value_estimation", _best, first=True)
"""E[Q(s₀, π(s₀))] over episodes: the return that the critics expect of the policy (Paine et al., arXiv:2007.09055)."""

continuous_action_diff_scorer = Scorer("continuous_action_diff", _distance, sign=-1)
"""-E[Σ (a - π(s))²], in the data's units and summed over the entries of an action: how far the policy is from the data's."""

discrete_action_match_scorer = Scorer("discrete_action_match", _match)
"""The share of the data's discrete actions that the policy would have taken too."""

SCORERS = {
    scorer.name: scorer
    for scorer in (
        td_error_scorer,
        discounted_sum_of_advantage_scorer,
        average_value_estimation_scorer,
        value_estimation_std_scorer,
        initial_state_value_estimation_scorer,
        continuous_action_diff_scorer,
        discrete_action_match_scorer,
    )
}
"""By name those that need nothing but an algorithm and episodes."""


def soft_opc_scorer(return_threshold: float) -> Scorer:
    """E[Q(s, a)] in successful episodes, less that in all: whether critics tell success (Irpan et al., arXiv:1906.01624).

    Args:
        return_threshold: An episode that returns as much, or more, is a success.
    """
    threshold = float(return_threshold)
    none = f"no episode returns {threshold:g} or more, from where it would be a success"
    return Scorer("soft_opc", _taken, where=partial(_successful, threshold), none=none, less_all=True)


@dataclass(frozen=True)
class Comparer:
    """Compares actions with another algorithm's on the same episodes, each of which sees them with its own scalers and frames."""

    name: str
    base_algo: Algorithm
    kind: Literal["continuous", "discrete"]
    window_size: int
    sign: int = 1

    @torch.no_grad()
    def __call__(self, algo: Algorithm, episodes: Data, y: None = None) -> float:
        """The score. Raises ConfigError where either algorithm has the other kind of actions, else as `Scorer`."""
        for one in (algo, self.base_algo):
            if one.spec_.discrete != (self.kind == "discrete"):
                other = "compare_discrete_action_match" if one.spec_.discrete else "compare_continuous_action_diff"
                raise ConfigError(f"{one.name} has {one.spec_.action_kind} actions, which {other} is for.")
        total, n = torch.zeros((), dtype=torch.float64), 0
        mine_seen, theirs_seen = (walk(one, episodes, self.window_size) for one in (algo, self.base_algo))
        for mine, theirs in zip(mine_seen, theirs_seen, strict=True):
            total += self._compared(mine.greedy.cpu(), theirs.greedy.cpu()).double().sum()
            n += len(mine.greedy)
        return self.sign * float(total / n)

    def _compared(self, mine: Tensor, theirs: Tensor) -> Tensor:
        return mine == theirs if self.kind == "discrete" else (mine.double() - theirs.double()).square()


def compare_continuous_action_diff(base_algo: Algorithm, window_size: int = 1024) -> Comparer:
    """A scorer of -E[Σ (π(s) - π'(s))²], summed over the entries of an action, in the data's units.

    Args:
        base_algo: Whose policy is π'.
        window_size: Transitions that are looked at together.
    """
    return Comparer("compare_continuous_action_diff", base_algo, "continuous", window_size, sign=-1)


def compare_discrete_action_match(base_algo: Algorithm, window_size: int = 1024) -> Comparer:
    """A scorer of the share of observations at which both algorithms take the same action; arguments as above."""
    return Comparer("compare_discrete_action_match", base_algo, "discrete", window_size)


@dataclass(frozen=True)
class EnvironmentScorer:
    environment: AnyEnvironment
    n_trials: int
    epsilon: float
    n_envs: int | None = None  # at once
    sign: int = 1

    def __call__(self, algo: Algorithm, *args: Any) -> float:
        """The mean return of episodes that are the same at every call; further arguments are not looked at."""
        how: Any = {"episodes": self.n_trials, "epsilon": self.epsilon, "n_envs": self.n_envs}
        return evaluate(algo.policy(), self.environment, **how).mean


def evaluate_on_environment(
    env: AnyEnvironment, n_trials: int = 10, epsilon: float = 0.0, render: bool = False
) -> EnvironmentScorer:
    """A scorer that plays: `scorer(algorithm)`, or with episodes, which it does not look at.

    Args:
        env: As for `d3ray.algos.environments.make.make`.
        n_trials: Episodes.
        epsilon: Share of uniform random actions.
        render: Whether they are shown on a screen; an environment object must have been made with `render_mode="human"` for it.

    Raises:
        ConfigError: it is to be shown, and cannot be; when it is called, as `evaluate`.
    """
    if render and isinstance(env, str | Environment):
        known = env if isinstance(env, Environment) else Environment(id=env)
        env = known.model_copy(update={"kwargs": {**known.kwargs, "render_mode": "human"}})
    elif render and getattr(env, "render_mode", None) != "human":
        raise ConfigError('render is set, and this environment was not made with render_mode="human".')
    return EnvironmentScorer(env, n_trials, epsilon, n_envs=1 if render else None)


def dynamics_observation_prediction_error_scorer(dynamics: Any, episodes: Data, window_size: int | None = 1024) -> float:
    """-E[‖s' - ŝ'‖²], of the mean that a trained `ProbabilisticEnsemble` expects; MET-12 of d3rlpy's manual of 2020."""
    return -_of_model(dynamics, episodes, window_size, lambda found, step: (found[0] - step.next_observation).square().sum(-1))


def dynamics_reward_prediction_error_scorer(dynamics: Any, episodes: Data, window_size: int | None = 1024) -> float:
    """-E[(r - r̂)²], likewise."""
    return -_of_model(dynamics, episodes, window_size, lambda found, step: (found[1] - step.reward).square())


def dynamics_prediction_variance_scorer(dynamics: Any, episodes: Data, window_size: int | None = 1024) -> float:
    """-E[max_i ‖σ_i²‖], what the model leaves open."""
    return -_of_model(dynamics, episodes, window_size, lambda found, step: found[2])


def _of_model(dynamics: Any, episodes: Data, window_size: int | None, each: Callable[[tuple[Tensor, ...], Batch], Tensor]) -> float:
    """The mean over transitions whose next observation was recorded. Raises ConfigError for what is no model."""
    if not getattr(dynamics, "models_dynamics", False):
        raise ConfigError(f"{type(dynamics).__name__} is no model of the dynamics: score a trained ProbabilisticEnsemble.")
    total, n = 0.0, 0
    for step in followed(dynamics, episodes, window_size or 1024):
        found = dynamics.predict(step.observation.numpy(), step.action.numpy(), with_variance=True)
        values = each(tuple(map(torch.as_tensor, found)), step).double()
        total, n = total + float(values.sum()), n + len(values)
    return total / n
