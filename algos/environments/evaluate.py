"""Returns of a policy in an environment."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.errors import ConfigError
from ...data.seeds import fold, integers, root_key
from ...data.spec import Environment, Spec
from ...data.storage.costs import COST
from .goals import aimed, task_options
from .make import AnyEnvironment, environment_of, is_given, make
from .scores import normalized_score
from .spaces import check_spaces
from .vector import Policy, VectorEnvironment, facing, looked_back, rows_of

if TYPE_CHECKING:
    from .explorers import Explorer

MAX_STEPS = 100_000  # of an episode: Atari's longest have 27,000


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of episodes in the order of their numbers, without those that were never begun for want of time.

    Where the environment tells by its info whether a task was solved, as OGBench and gymnasium-robotics do by `success` or
    `is_success`, `successes` has what it told at the last step of each episode. Where it tells what steps cost, by `cost` of their
    info as Safety-Gymnasium does, `costs` has the sum of each episode.
    """

    returns: np.ndarray  # [episodes] float64, undiscounted sums of rewards
    lengths: np.ndarray  # [episodes] int64, steps
    environment: Environment | None = None  # None: an object that no registry knows
    cut: int = 0  # episodes that a limit ended, which count with what they had returned by then, or that it left no time for
    successes: np.ndarray | None = None  # [episodes] bool; None: it tells of none
    tasks: np.ndarray | None = None  # [episodes] int64, of an environment whose tasks come in turn; None: it has none
    costs: np.ndarray | None = None  # [episodes] float64, undiscounted sums; None: it tells of none

    @property
    def success(self) -> float | None:
        """The share of episodes in which the task was solved; None where the environment does not tell."""
        return None if self.successes is None else float(self.successes.mean())

    @property
    def shares(self) -> dict[str, float]:
        """Shares of solved episodes by metric: `success`, and of task 1 `success_task1`; none where it does not tell."""
        if self.successes is None:
            return {}
        tasks = () if self.tasks is None else np.unique(self.tasks)
        of_tasks = {success_of(int(task)): float(self.successes[self.tasks == task].mean()) for task in tasks}
        return {"success": float(self.successes.mean()), **of_tasks}

    @property
    def cost(self) -> float | None:
        """What an episode cost in the mean; None where the environment does not tell."""
        return None if self.costs is None else float(self.costs.mean())

    def told(self) -> dict[str, float]:
        """`shares` and `cost`, where the environment tells."""
        return {**self.shares, **({} if self.cost is None else {"cost": self.cost})}

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns, over these episodes (n in the denominator)."""
        return float(self.returns.std())

    @property
    def normalized(self) -> float | None:
        """The mean return, D4RL-normalised; None where D4RL has no reference for the environment."""
        return None if self.environment is None else normalized_score(self.environment.id, self.mean)


def success_of(task: int) -> str:
    """The metric's name of the share of episodes of a task that were solved."""
    return f"success_task{task}"


def evaluate(
    policy: Policy,
    environment: AnyEnvironment | VectorEnvironment,
    *,
    episodes: int = 10,
    seed: int = 0,
    n_envs: int | None = None,
    epsilon: float = 0.0,
    watch: Callable[[int], None] | None = None,
    max_steps: int | None = MAX_STEPS,
    timeout: float | None = None,
) -> Evaluation:
    """Returns of `episodes` episodes, played by `n_envs` environments at once.

    Episode k is played by environment k mod n_envs and is reset with a seed derived from (seed, k). Who plays what is so settled
    beforehand: were episodes counted as they finish, short ones would be counted more often. A deterministic policy gets the same
    returns whatever n_envs is, as far as its own arithmetic does not depend on the number of rows (a matrix product's last bit
    may).

    Where a reward is NaN or infinite so is the return of its episode; a warning says where that was first.

    Args:
        policy: Raw observations in, raw actions out. Its state is started anew with every round of n_envs episodes.
        environment: As for `make`. An object is left open; what is made here is closed.
        episodes: How many.
        seed: Any integer.
        n_envs: How many at once. None: min(episodes, 10), or one where an environment object is given.
        epsilon: Share of uniform random actions, drawn by (seed, step), so with it the number of environments matters.
        watch: Called after each reset and each step with the number of the first episode that is being played, as for pictures.
        max_steps: Steps after which an episode that goes on is cut. None: it may go on for ever.
        timeout: Seconds after which nothing is played any more, looked at between steps: one that does not come back is waited
            for. None: no limit. Where one of the two was met, a warning says so and the evaluation's `cut` how many it concerns.

    Raises:
        ConfigError: `episodes`, `n_envs`, `max_steps` or `timeout` is not positive, `epsilon` is not in [0, 1], or the environment
            cannot be made.
        DataError: the environment's spaces are not those that the policy was fitted on, or its action is NaN.
    """
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}; an evaluation needs at least 1.")
    if n_envs is not None and n_envs < 1:
        raise ConfigError(f"n_envs is {n_envs}; an evaluation needs at least 1.")
    if max_steps is not None and max_steps < 1:
        raise ConfigError(f"max_steps is {max_steps}; an episode needs at least 1, and None sets no limit.")
    if timeout is not None and not timeout > 0:
        raise ConfigError(f"timeout is {timeout:g}; an evaluation needs more than 0 seconds, and None sets no limit.")
    explorer, environment = _wandering(epsilon), aimed(environment, getattr(policy, "spec", None))
    vector = make(environment, n=_how_many(environment, episodes, n_envs), evaluating=True)
    try:
        limits = _Limits(max_steps, timeout)
        played = _play(_fit_for(policy, vector), vector, episodes, seed, explorer, watch, limits)
    finally:
        if not is_given(environment):
            vector.close()
    if played.cut:
        warnings.warn(_said_of(played, episodes, limits), stacklevel=2)
    return played


class EnvironmentEvaluator:
    """An evaluator: `(algorithm, epoch) → {name: float}`. Every epoch plays the same episodes, whatever was played before.

    So two evaluations differ by their policies alone. Trials play other episodes at each step, by a seed that follows from it.

    Args:
        environment, episodes, seed, n_envs, epsilon, max_steps, timeout: As for `evaluate`. Environments are made at the first
            call and kept.
    """

    def __init__(
        self,
        environment: AnyEnvironment | VectorEnvironment,
        *,
        episodes: int = 10,
        seed: int = 0,
        n_envs: int | None = None,
        epsilon: float = 0.0,
        max_steps: int | None = MAX_STEPS,
        timeout: float | None = None,
    ) -> None:
        self.environment, self.episodes, self.seed, self.n_envs, self.epsilon = environment, episodes, seed, n_envs, epsilon
        self.max_steps, self.timeout = max_steps, timeout
        self._vector: VectorEnvironment | None = None

    def __call__(self, algorithm: Any, epoch: int) -> dict[str, float]:
        """return, return_std and length; normalized_return where a reference exists, `Evaluation.told`, cut where any was.

        Of a policy that acts for a return these are of its first target, and `return_target_1800` and so on of its others.
        """
        policies = by_target(algorithm.policy())
        if self._vector is None:
            environment = aimed(self.environment, getattr(policies[""], "spec", None))
            self._vector = make(environment, n=_how_many(self.environment, self.episodes, self.n_envs), evaluating=True)
        metrics: dict[str, float] = {}
        for name, policy in policies.items():
            how: dict[str, Any] = {"epsilon": self.epsilon, "max_steps": self.max_steps, "timeout": self.timeout}
            played = evaluate(policy, self._vector, episodes=self.episodes, seed=self.seed, **how)
            found = {"return": played.mean, "return_std": played.std, "length": float(played.lengths.mean())}
            found |= played.told()
            found |= {"cut": float(played.cut)} if played.cut else {}
            metrics |= {f"{key}{name}": value for key, value in found.items()}
            if (score := played.normalized) is not None:
                metrics[f"normalized_return{name}"] = score
        return metrics

    def close(self) -> None:
        if self._vector is not None and not is_given(self.environment):
            self._vector.close()
        self._vector = None


def by_target(policy: Any) -> dict[str, Policy]:
    """A policy by what its metrics' names end in: one that acts for a return once for each of its targets, the first without."""
    targets = getattr(policy, "target_returns", ())
    return {"": policy} | {f"_target_{target:g}": policy.asking(target) for target in targets[1:]}


def episode_seeds(seed: int, episodes: int) -> list[int]:
    """Reset seeds of episodes 0 … episodes - 1: each a function of (seed, its number) alone."""
    return integers(fold(root_key(seed), "evaluation episode"), episodes, 2**31 - 1)


def _fit_for(policy: Policy, vector: VectorEnvironment) -> Policy:
    """The policy as it acts in such an environment. Raises DataError where that has other spaces than the policy was fitted on."""
    facing_it = facing(policy, vector.spec)
    if isinstance(fitted := getattr(policy, "spec", None), Spec):
        environment = environment_of(vector.single)
        shown = vector.spec if facing_it is policy else facing_it.spec  # stacks of the frames that it shows
        check_spaces(shown, fitted, environment.id if environment else "the environment", "this policy", fewer_actions="fitted")
        vector.keep_float64(fitted)
    return facing_it


def _how_many(environment: Any, episodes: int, n_envs: int | None) -> int:
    return min(episodes, n_envs or (1 if is_given(environment) else 10))


def _wandering(epsilon: float) -> Explorer | None:
    """Make what takes a share of random actions; mostly there is none, and exported policies play without torch."""
    if not epsilon:
        return None
    from .explorers import ConstantEpsilonGreedy

    return ConstantEpsilonGreedy.checked({"epsilon": epsilon}, title="evaluate")


class _Limits:
    """Limits of an evaluation, its time counted from here on; `long` counts the episodes that went on after `max_steps`."""

    def __init__(self, max_steps: int | None, timeout: float | None) -> None:
        self.max_steps, self.timeout, self.long = max_steps, timeout, 0
        self._end = None if timeout is None else time.monotonic() + timeout

    @property
    def over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


def _said_of(played: Evaluation, episodes: int, limits: _Limits) -> str:
    missing = episodes - len(played.returns)
    late, of = played.cut - missing - limits.long, f"of its {episodes} episodes"
    after = f"after {limits.timeout:g} seconds (timeout)" if limits.timeout else ""
    ends = [f"{limits.long} {of} went on after {limits.max_steps:,} steps (max_steps)"] if limits.long else []
    ends += [f"{late} {of} had not ended {after}"] if late else []
    parts = [f"{' and '.join(ends)}; they count with what they returned by then"] if ends else []
    parts += [f"{missing} {of} had not begun {after} and {'does' if missing == 1 else 'do'} not count"] if missing else []
    where = f" in {played.environment.id}" if played.environment else ""
    return f"An evaluation{where} was cut: {', and '.join(parts)}."


def _play(
    policy: Policy,
    vector: VectorEnvironment,
    episodes: int,
    seed: int,
    explorer: Explorer | None,
    watch: Callable[[int], None] | None,
    limits: _Limits,
) -> Evaluation:
    returns, lengths, solved = np.zeros(episodes), np.zeros(episodes, np.int64), dict[int, bool]()
    costs = dict[int, float]()
    seeds, made, cut, begun, bad = episode_seeds(seed, episodes), 0, 0, 0, ""
    for first in range(0, episodes, vector.n):  # in rounds, so that a policy that keeps state needs nothing but `start`
        n = min(vector.n, episodes - first)
        if begun and limits.over:
            break
        playing, begun = list(range(n)), first + n
        options = task_options(vector.single, range(first, first + n))
        observation, state = vector.reset(playing, seeds[first : first + n], options), policy.start(n)
        if watch is not None:
            watch(first)
        while playing:
            state, action = policy.step(state, rows_of(observation, slice(n)))
            if explorer is not None:
                seen = rows_of(observation, slice(n))
                action = explorer.explore_at(seen, np.asarray(action), vector.spec.action, step=made, seed=seed)
            result = vector.step(action, playing)
            state = looked_back(policy, state, action, result.reward[:n])
            made += 1
            returns[first : first + n] += result.reward[:n]  # zero for those that have finished
            lengths[[first + i for i in playing]] += 1
            _add_costs(costs, {first + i: result.info[i] for i in playing})
            if not bad and not np.isfinite(result.reward).all():
                i = int((~np.isfinite(result.reward)).argmax())
                at = f"at step {lengths[first + i]} of episode {first + i}"
                bad = f"Environment {i}, {_name_of(vector)}, paid {result.reward[i]} {at}"
            before = playing
            if (ended := result.ended).any():
                playing = [i for i in playing if not ended[i]]
            long = bool(playing) and lengths[first + playing[0]] == limits.max_steps  # those that go on are equally long
            if playing and (long or limits.over):
                limits.long += len(playing) if long else 0
                cut, playing = cut + len(playing), []
            if len(playing) < len(before):
                solved |= {first + i: told for i in before if i not in playing and (told := _solved(result.info[i])) is not None}
            observation = result.observation
            if watch is not None:
                watch(first)
    if bad:
        warnings.warn(f"{bad}, so the mean return is no finite number.", stacklevel=3)
    cut += episodes - begun
    successes = np.array([solved[k] for k in range(begun)]) if len(solved) == begun else None
    options = task_options(vector.single, range(begun))
    tasks = None if options is None else np.array([one["task_id"] for one in options], np.int64)
    told = np.array([costs.get(k, 0.0) for k in range(begun)]) if costs else None
    return Evaluation(returns[:begun], lengths[:begun], environment_of(vector.single), cut, successes, tasks, told)


def _solved(info: Mapping[str, Any]) -> bool | None:
    """What an environment tells of its task; None: nothing."""
    told = _number(info.get("success", info.get("is_success")))
    return None if told is None else bool(told)


def _add_costs(costs: dict[int, float], told: Mapping[int, Mapping[str, Any]]) -> None:
    """Add what environments tell that a step cost to the sums of episodes, by their numbers."""
    for episode, info in told.items():
        if (cost := _number(info.get(COST))) is not None:
            costs[episode] = costs.get(episode, 0.0) + cost


def _number(told: Any) -> float | None:
    return float(told) if isinstance(told, bool | int | float | np.bool_ | np.number) else None


def _name_of(vector: VectorEnvironment) -> str:
    known = environment_of(vector.single)
    return type(vector.single).__name__ if known is None else known.id
