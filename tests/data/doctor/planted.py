"""A healthy dataset made up here, and one with each fault that the doctor knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from d3ray.data.dataset import Dataset
from d3ray.data.doctor import EnvironmentFacts
from d3ray.data.spec import Box, Discrete, Environment, Spec

LIMIT = 60
SPEC = Spec(observation=Box(shape=(4,)), action=Box(shape=(2,), low=-1.0, high=1.0))
FACTS = EnvironmentFacts(SPEC, LIMIT)


@dataclass
class Arrays:
    """Steps of a point that is pushed to the origin: position and velocity, a push, minus the squared distance."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final: np.ndarray | None
    spec: Spec | None = None
    environment: Environment | None = None

    def dataset(self, **more: Any) -> Dataset:
        return Dataset.from_arrays(
            self.observations,
            self.actions,
            self.rewards,
            self.terminated,
            self.truncated,
            final_observations=self.final,
            spec=self.spec,
            environment=self.environment,
            name="planted",
            **more,
        )

    @property
    def first(self) -> np.ndarray:
        """[N] bool: the first step of each episode."""
        return np.r_[True, (self.terminated | self.truncated)[:-1]]

    @property
    def last(self) -> np.ndarray:
        return self.terminated | self.truncated


def healthy(n_episodes: int = 120, noise: float = 0.3, seed: int = 0, corner: bool = False) -> Arrays:
    """Episodes that end terminated near the origin, or truncated after `LIMIT` steps; they begin anywhere, or in one corner."""
    rng = np.random.default_rng(seed)
    state = np.concatenate([rng.uniform(-2, 2, (n_episodes, 2)), rng.normal(0, 0.5, (n_episodes, 2))], 1)
    state = [2, 2, 0, 0] + 0.01 * state if corner else state
    states, actions, rewards, near = [state], [], [], []
    for _ in range(LIMIT):
        position, velocity = state[:, :2], state[:, 2:]
        action = np.clip(-0.4 * position - 0.5 * velocity + noise * rng.normal(size=(n_episodes, 2)), -1, 1)
        velocity = 0.9 * velocity + 0.2 * action
        state = np.concatenate([position + 0.2 * velocity, velocity], 1)
        rewards.append(-np.square(position).sum(1) - 0.5 * np.square(action).sum(1))
        near.append((np.abs(state[:, :2]) < 0.1).all(1))
        states.append(state)
        actions.append(action)
    ends = np.stack(near, 1)
    steps = np.where(ends.any(1), ends.argmax(1) + 1, LIMIT)
    taken = np.arange(LIMIT) < steps[:, None]
    last = np.arange(LIMIT) == steps[:, None] - 1
    terminated = last & ends
    return Arrays(
        np.stack(states, 1)[:, :-1][taken].astype(np.float32),
        np.stack(actions, 1)[taken].astype(np.float32),
        np.stack(rewards, 1)[taken].astype(np.float32),
        terminated[taken],
        (last & ~terminated)[taken],
        np.stack(states, 1)[np.arange(n_episodes), steps].astype(np.float32),
        SPEC,
        Environment(id="Point-v0"),
    )


Planted = tuple[Dataset, EnvironmentFacts | None]


def _changed(**changes: Any) -> Planted:
    return replace(healthy(), **changes).dataset(), FACTS


def _column(name: str, row: int, value: Any) -> Planted:
    """A number that no importer would let in, as another program may write it."""
    table = healthy().dataset().to_steps()
    column = table.columns[name].copy()
    column[row] = value
    columns = {**table.columns, name: column}
    return Dataset.from_steps(replace(table, columns=columns), name="planted", spec=SPEC, environment=Environment(id="P-v0")), FACTS


def _late() -> Planted:
    one = healthy()
    return replace(one, rewards=np.where(one.first, 0, np.roll(one.rewards, 1))).dataset(), FACTS


def _early() -> Planted:
    one = healthy()
    return replace(one, rewards=np.where(one.last, 0, np.roll(one.rewards, -1))).dataset(), FACTS


def _actions(scale: float, bound: float | None) -> Planted:
    spec = SPEC.model_copy(update={"action": Box(shape=(2,), low=None if bound is None else -bound, high=bound)})
    return replace(healthy(), actions=healthy().actions * scale, spec=spec).dataset(), None


def _discrete(actions: np.ndarray, n: int) -> Planted:
    spec = SPEC.model_copy(update={"action": Discrete(n=n)})
    return replace(healthy(), actions=actions.astype(np.int64), spec=spec).dataset(), None


def _illegal() -> Planted:
    one = healthy()
    actions = np.random.default_rng(0).integers(0, 3, len(one.rewards))
    legal = np.ones((len(actions), 3), bool)
    legal[[70, 71], actions[[70, 71]]] = False
    spec = SPEC.model_copy(update={"action": Discrete(n=3)})
    return replace(one, actions=actions, spec=spec).dataset(action_mask=legal, illegal_actions="keep"), None


def _observations(change: Callable[[np.ndarray], np.ndarray], low: float | None = None) -> Planted:
    one = healthy()
    assert one.final is not None
    both = change(np.concatenate([one.observations, one.final])).astype(np.float32)
    n = len(one.observations)
    box = Box(shape=both.shape[1:], low=low, high=None if low is None else -low)
    spec = SPEC.model_copy(update={"observation": box})
    return replace(one, observations=both[:n], final=both[n:], spec=spec).dataset(), None


def _bag(repeat: int) -> Planted:
    one = healthy()
    n = len(one.rewards)
    following = np.where(one.last[:, None], 0, np.roll(one.observations, -1, 0))
    rows = np.repeat(np.arange(n), repeat)
    arrays = (one.observations[rows], one.actions[rows], one.rewards[rows], one.terminated[rows])
    return Dataset.from_arrays(*arrays, next_observations=following[rows], name="planted"), None


def _shuffled() -> Planted:
    one = healthy()
    following = np.roll(one.observations, -1, 0)
    following[::50] += 1
    arrays = (one.observations, one.actions, one.rewards, one.terminated, one.truncated)
    return Dataset.from_arrays(*arrays, next_observations=following, name="planted"), None


def _twice() -> Planted:
    one = healthy().dataset()
    return Dataset.concat([one, one]), FACTS


def _outlier() -> Planted:
    rewards = healthy().rewards.copy()
    rewards[100] = -1e5
    return _changed(rewards=rewards)


def _all_ends() -> Planted:
    n = len(healthy().rewards)
    return _changed(terminated=np.ones(n, bool), truncated=np.zeros(n, bool), final=None)


def decisions(**changes: Any) -> Planted:
    """Contexts in any order, each with one of three actions and what it earned."""
    rng = np.random.default_rng(0)
    arrays = {"observations": rng.normal(3, 2, (400, 4)), "actions": rng.integers(0, 3, 400), "rewards": rng.random(400)}
    return Dataset.from_arrays(**{**arrays, "terminated": np.ones(400, bool), **changes}), None


def _without_terminals() -> Planted:
    one = healthy()
    return replace(one, terminated=np.zeros_like(one.last), truncated=one.last).dataset(), FACTS


def _timeouts() -> Planted:
    one = healthy()
    return replace(one, terminated=one.last, truncated=np.zeros_like(one.last)).dataset(), None


def _short_without_final() -> Planted:
    one = healthy()
    cut = np.arange(len(one.last)) % 10 == 9
    return replace(one, truncated=(one.truncated | cut) & ~one.terminated, final=None).dataset(), FACTS


def _wide(observations: np.ndarray) -> np.ndarray:
    return observations[:, :1] * np.arange(1, 9) + 0.01 * np.resize(observations, (len(observations), 8))


def _joined() -> Planted:
    """Only the last of 120 ends is left."""
    arrays = healthy(corner=True)
    none = np.zeros_like(arrays.last)
    return replace(arrays, terminated=none, truncated=none, final=None).dataset(), None


def with_end_goals(goal: Callable[[np.ndarray], np.ndarray]) -> Planted:
    """Goals beside observations: what `goal` makes of the end of each step's episode, where the place is reached."""
    one = healthy()
    last = np.flatnonzero(one.last)
    ends = np.asarray(one.final)[np.searchsorted(last, np.arange(len(one.rewards)))]
    seen = {"observation": one.observations, "goal": goal(ends).astype(np.float32)}
    final = {"observation": one.final, "goal": goal(np.asarray(one.final)).astype(np.float32)}
    return (
        Dataset.from_arrays(
            seen, one.actions, one.rewards, one.terminated, one.truncated, final_observations=final, name="planted"
        ),
        None,
    )


def _costs(each: float) -> Planted:
    data = healthy()
    return data.dataset(extra={"cost": np.full(len(data.rewards), each)}), FACTS


LIMITS = {"costs_missing": 5.0, "costs_above_limit": 0.5}  # of the costs of an episode, where a fault is one against it
PLANTED: dict[str, Callable[[], Planted]] = {
    "not_finite": lambda: _column("observation", 77, np.nan),
    "rows_disagree": lambda: _column("terminated", 77, True),
    "rewards_late": _late,
    "rewards_early": _early,
    "spaces_disagree": lambda: (
        healthy().dataset(),
        EnvironmentFacts(SPEC.model_copy(update={"observation": Box(shape=(5,))}), LIMIT),
    ),
    "actions_far_outside": lambda: _actions(100, 1),
    "actions_outside": lambda: _actions(1.5, 1),
    "actions_illegal": _illegal,
    "actions_normalised": lambda: _actions(1, 2),
    "actions_huge": lambda: _actions(1000, None),
    "actions_constant": lambda: _actions(0, 1),
    "actions_unused": lambda: _discrete(np.random.default_rng(0).integers(0, 3, len(healthy().rewards)), 5),
    "timeouts_as_terminals": _timeouts,
    "longer_than_limit": lambda: (healthy().dataset(), EnvironmentFacts(SPEC, 30)),
    "next_observations_differ": _shuffled,
    "observations_jump": _joined,
    "final_missing": _short_without_final,
    "single_steps": _all_ends,
    "one_step_log": decisions,
    "decisions_cut": lambda: decisions(terminated=np.zeros(400, bool), truncated=np.ones(400, bool)),
    "no_terminals": _without_terminals,
    "few_episodes": lambda: (healthy(1).dataset(), FACTS),
    "duplicate_episodes": _twice,
    "duplicate_transitions": lambda: _bag(2),
    "goals_unreached": lambda: with_end_goals(lambda ends: np.add(ends, [0, 9, 0, 0])),
    "goals_far": lambda: (healthy().dataset(), replace(FACTS, goals=np.add(healthy().observations[:5], [30, 0, 0, 0]))),
    "rewards_zero": lambda: _changed(rewards=np.zeros_like(healthy().rewards)),
    "rewards_constant": lambda: _changed(
        rewards=np.ones_like(healthy().rewards), terminated=np.zeros_like(healthy().last), truncated=healthy().last
    ),
    "rewards_sparse": lambda: _changed(rewards=healthy().terminated.astype(np.float32)),
    "costs_missing": lambda: (healthy().dataset(), FACTS),
    "costs_zero": lambda: _costs(0.0),
    "costs_negative": lambda: _costs(-1.0),
    "costs_above_limit": lambda: _costs(1.0),
    "return_outliers": _outlier,
    "observations_constant": lambda: _observations(lambda o: o * [1, 1, 1, 0]),
    "observations_normalised": lambda: _observations(lambda o: (o - o.mean(0)) / o.std(0)),
    "observations_outside": lambda: _observations(lambda o: o, low=-1.0),
    "observations_clipped": lambda: _observations(lambda o: np.clip(o, -1.2, None)),
    "scales_differ": lambda: _observations(lambda o: o * [1, 1, 1, 1e4]),
    "states_low_rank": lambda: _observations(_wide),
    "actions_saturated": lambda: _changed(actions=np.clip(5 * healthy().actions, -1, 1)),
    "actions_narrow": lambda: _actions(0.05, 1),
    "behaviour_deterministic": lambda: (healthy(noise=0).dataset(), FACTS),
    "environment_unknown": lambda: _changed(environment=None),
}
