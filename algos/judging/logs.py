"""What estimates are made from: logged steps, with how likely the behaviour and the judged policy were to act as was logged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...data.dataset import Dataset
from ...data.errors import ConfigError, DataError
from ...data.storage.checks import as_array

LOG_PROB = "log_prob"  # the column of datasets, as importers call it
OF_EPISODES = ("final_value", "model_value")  # attributes with a number an episode
_ABOVE = 1e-6  # above 0, what rounding may do to the logarithm of 1


@dataclass(frozen=True, eq=False)
class Logs:
    """Whole episodes, one after the other: N steps in E episodes. Numbers become float64.

    Attributes:
        reward: [N], of the action in the same row.
        steps: [E], of each episode, 1 or more.
        log_prob: [N], natural logarithm of the probability (for continuous actions the density) with which the behaviour took the
            logged action. None: not known.
        policy_log_prob: [N], the same of the judged policy; -inf where it never takes that action. None: not known, or a
            deterministic policy of continuous actions, which has no density.
        gamma: γ, the discount of one step.
        discrete: Whether actions are discrete, so that probabilities are at most 1.
        q_value: [N], Q(s, a) of the logged actions under the judged policy, as an estimate has it (FQE). None: there is none.
        value: [N], V(s) = E[Q(s, a)] with actions of the judged policy.
        final_value: [E], V of what an episode's last step led to, 0 where the task ended there. None: 0 everywhere, so what lies
            beyond the recording is not counted.
        model_value: [E], what a model of the dynamics expects the judged policy to return from where each episode began. None:
            there is no model.
        estimated: Whether `log_prob` was estimated from the data, in place of recorded by who acted.

    Raises:
        DataError: fewer rows than steps or more, NaN, a probability of 0 for what was logged, one above 1 of discrete actions, or
            one episode alone; a sentence names the array and the row.
        ConfigError: γ is not in [0, 1], or one of `q_value` and `value` is missing.
    """

    reward: np.ndarray
    steps: np.ndarray
    log_prob: np.ndarray | None = None
    policy_log_prob: np.ndarray | None = None
    gamma: float = 0.99
    discrete: bool = True
    q_value: np.ndarray | None = None
    value: np.ndarray | None = None
    final_value: np.ndarray | None = None
    model_value: np.ndarray | None = None
    estimated: bool = False

    @classmethod
    def of(cls, dataset: Dataset, policy_log_prob: np.ndarray | None, **more: Any) -> Logs:
        """Take those of a dataset in the order of its episodes; `log_prob` is its column where none is given."""
        if LOG_PROB not in more and has_column(dataset, LOG_PROB):
            more = {**more, LOG_PROB: logged(dataset, LOG_PROB)}
        about: dict[str, Any] = {"policy_log_prob": policy_log_prob, "discrete": dataset.spec.action_kind != "continuous", **more}
        return cls(logged(dataset, "reward"), dataset.episodes.steps, **about)

    def __post_init__(self) -> None:
        steps = np.asarray(self.steps)
        if steps.ndim != 1 or steps.dtype.kind not in "iu" or (steps < 1).any():
            raise DataError("steps are whole numbers, one an episode and each at least 1.")
        if len(steps) < 2:
            some = "one episode" if len(steps) else "no episode"
            raise DataError(f"The logs hold {some}, which does not tell how far others would differ; give two or more.")
        object.__setattr__(self, "steps", steps.astype(np.int64))
        n = int(steps.sum())
        for name in ("reward", LOG_PROB, "policy_log_prob", "q_value", "value", "final_value", "model_value"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, _checked(name, given, len(steps) if name in OF_EPISODES else n))
        if not 0 <= self.gamma <= 1:
            raise ConfigError(f"gamma is {self.gamma}; it is a number from 0 to 1.")
        if (self.q_value is None) != (self.value is None):
            there, missing = ("value", "q_value") if self.q_value is None else ("q_value", "value")
            raise ConfigError(f"There is {there} and no {missing}; estimates need both or neither.")
        for name in (LOG_PROB, "policy_log_prob"):
            if (found := getattr(self, name)) is not None:
                _check_probabilities(name, found, self.discrete, may_be_zero=name != LOG_PROB)

    # ---- where steps lie

    @cached_property
    def first(self) -> np.ndarray:
        return np.cumsum(self.steps) - self.steps

    @cached_property
    def episode(self) -> np.ndarray:
        """[N], the number of each step's episode."""
        return np.repeat(np.arange(len(self.steps)), self.steps)

    @cached_property
    def step(self) -> np.ndarray:
        """[N], t: the number of each step in its episode."""
        return np.arange(len(self.reward)) - np.repeat(self.first, self.steps)

    @cached_property
    def discount(self) -> np.ndarray:
        return (self.gamma ** np.arange(self.steps.max(), dtype=np.float64))[self.step]

    def total(self, values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, self.first)

    @cached_property
    def returns(self) -> np.ndarray:
        return self.total(self.discount * self.reward)

    @cached_property
    def continued(self) -> np.ndarray:
        """[E], returns and what the judged policy is expected to make of what lies beyond the recording: + γ^T V(s_T)."""
        return self.returns if self.final_value is None else self.returns + self.gamma**self.steps * self.final_value

    @cached_property
    def possible(self) -> tuple[float, float]:
        """The least and the largest value that rewards like those logged allow, beyond the recording too where that counts."""
        # Without a discount others may gather more than was logged, for they may go on for longer.
        undiscounted = 1.0 if self.final_value is None and self.steps.max() == 1 else np.inf
        horizon = 1 / (1 - self.gamma) if self.gamma < 1 else undiscounted
        ends = min(float(self.reward.min()), 0.0), max(float(self.reward.max()), 0.0)
        return (ends[0] * horizon if ends[0] else 0.0), (ends[1] * horizon if ends[1] else 0.0)

    # ---- weights

    @property
    def has_weights(self) -> bool:
        return self.log_prob is not None and self.policy_log_prob is not None

    @cached_property
    def log_ratio(self) -> np.ndarray:
        if self.log_prob is None:
            raise DataError(f"The data have no {LOG_PROB!r}, the behaviour's log-probability of each action.")
        if self.policy_log_prob is None:
            raise DataError("The judged policy has no probabilities.")
        return self.policy_log_prob - self.log_prob

    @cached_property
    def log_weight(self) -> np.ndarray:
        """[N], log w_t = Σ log ρ over the episode's steps up to and with t."""
        return cumulative(self.log_ratio, self.steps)

    @cached_property
    def episode_log_weight(self) -> np.ndarray:
        return self.log_weight[self.first + self.steps - 1]

    @cached_property
    def log_sums(self) -> np.ndarray:
        """[T], log Σ_i w_t of all episodes, at each step of the longest; one that ended keeps the weight that it had."""
        return _log_sums(self, 1)

    @cached_property
    def ess_by_step(self) -> np.ndarray:
        """[T], Kish's (Σ_i w_t)² / Σ_i w_t²: how many equally weighted episodes vary as much; 0 where all weights are."""
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(np.exp(2 * self.log_sums - _log_sums(self, 2)))

    @cached_property
    def unsupported(self) -> float:
        """The share of steps whose logged action the judged policy never takes."""
        return 0.0 if self.policy_log_prob is None else float(np.isneginf(self.policy_log_prob).mean())

    # ---- values

    @property
    def has_values(self) -> bool:
        return self.value is not None

    @cached_property
    def value_error(self) -> float:
        """Standard error of V at first states that chance in the logs leaves, where V solves its equations on them.

        To first order it is that of Σ_t γ^t δ_t over what the judged policy would go through. Steps count by how much likelier it
        takes their actions than the behaviour; that it comes to other states more often is not known, and not counted.
        """
        if not self._share.any() or math.isinf(self._steps_to_come):  # nothing was logged that it would do, or no end of it
            return math.inf
        return float(self._steps_to_come * np.linalg.norm(self._share * self.surprise))

    @cached_property
    def value_bias(self) -> float:
        """The distance of V at first states from what solves its equations on the logs: the mean of the same Σ_t γ^t δ_t."""
        return float(self._steps_to_come * (self._share @ self.surprise))

    @cached_property
    def _share(self) -> np.ndarray:
        """[N], by which steps count that the judged policy would take too; they sum to 1, or to 0 where there is none."""
        weight = np.ones(len(self.reward)) if self.policy_log_prob is None else np.exp(self.policy_log_prob)
        if self.has_weights:
            weight = np.exp(np.minimum(self.log_ratio, 700.0))
        return weight / (weight.sum() or 1.0)

    @cached_property
    def _steps_to_come(self) -> float:
        """Discounted steps of an episode of the judged policy; those that were logged where it would end sooner."""
        last = self.first + self.steps - 1
        ended = self._share[last] if self.final_value is None else self._share[last] * (self.final_value == 0)
        going = self.gamma * (1 - ended.sum())
        return max(self.total(self.discount).mean(), 1 / (1 - going) if going < 1 else math.inf)

    @cached_property
    def surprise(self) -> np.ndarray:
        if self.value is None or self.q_value is None:
            raise DataError("There is no estimate of the judged policy's values.")
        following = np.append(self.value[1:], 0.0)
        following[self.first + self.steps - 1] = 0.0 if self.final_value is None else self.final_value
        return self.reward + self.gamma * following - self.q_value


def has_column(dataset: Dataset, column: str) -> bool:
    return column in dataset.rows().names()


def logged(dataset: Dataset, column: str) -> np.ndarray:
    """A column of the steps, [N, ...], in the order of the episodes; rows that only close an episode are left out."""
    rows = dataset.rows()
    return rows.read(column, 0, rows.n)[~rows.read("closing", 0, rows.n).astype(bool)]


def cumulative(values: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Sums within each episode, up to and with each step: [N] to [N].

    Episodes of like length (up to a factor of 2) lie side by side in one array, so -inf stays in its episode, and sums of one do
    not lose the digits that sums over the whole file would.
    """
    first, found = np.cumsum(steps) - steps, np.empty(len(values))
    sizes = np.ceil(np.log2(steps))
    for size in np.unique(sizes):
        mine = np.flatnonzero(sizes == size)
        there = np.arange(steps[mine].max()) < steps[mine, None]
        places = (first[mine, None] + np.arange(there.shape[1]))[there]
        padded = np.zeros(there.shape)
        padded[there] = values[places]
        found[places] = padded.cumsum(1)[there]
    return found


def _log_sums(logs: Logs, power: int) -> np.ndarray:
    width = int(logs.steps.max())
    top, ended = np.full((2, width), -np.inf)
    np.maximum.at(top, logs.step, power * logs.log_weight)
    top[np.isneginf(top)] = 0.0
    with np.errstate(divide="ignore"):
        running = top + np.log(np.bincount(logs.step, np.exp(power * logs.log_weight - top[logs.step]), width))
    over = logs.steps < width
    np.logaddexp.at(ended, logs.steps[over], power * logs.episode_log_weight[over])
    return np.logaddexp(running, np.logaddexp.accumulate(ended))


def _checked(name: str, given: Any, n: int) -> np.ndarray:
    values = as_array(name, given).astype(np.float64)
    if values.shape != (n,):
        what = "one an episode" if name in OF_EPISODES else "one a step"
        raise DataError(f"{name} has the shape {list(values.shape)}; it takes {n} numbers, {what}.")
    bad = np.isnan(values) if name == "policy_log_prob" else ~np.isfinite(values)
    if name == LOG_PROB:
        bad &= ~np.isneginf(values)  # which has a sentence of its own
    if bad.any():
        row = int(bad.argmax())
        raise DataError(f"{name} is {values[row]} in row {row}.")
    return values


def _check_probabilities(name: str, values: np.ndarray, discrete: bool, *, may_be_zero: bool) -> None:
    who = "the behaviour" if name == LOG_PROB else "the judged policy"
    if not may_be_zero and (row := int(values.argmin())) >= 0 and np.isneginf(values[row]):
        raise DataError(f"{name} is -inf in row {row}: {who} has a probability of 0 for the action that was logged there.")
    row = int(values.argmax())
    if discrete and values[row] > _ABOVE:
        raise DataError(
            f"{name} is {values[row]:.6g} in row {row}, a probability of {np.exp(values[row]):.4g}, above 1; "
            "it takes natural logarithms of probabilities."
        )
    if np.isposinf(values[row]):
        raise DataError(f"{name} is inf in row {row}: a deterministic policy of continuous actions has no density, so give None.")
