"""Environments that set a goal, which policies see beside the observation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from ...data.errors import ConfigError
from ...data.operations.goals import ASKED, GOAL, SEEN, has_goals
from ...data.spec import Environment, Goals, Spec

_EPISODES = 5


class GoalObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows the goal of an episode: `goal` of the info that a reset gives, as OGBench has it, or the key `desired_goal`.

    Observations become a dict with the key `goal`, in the place of `desired_goal`; those that were none are its key `observation`.

    Args:
        environment: What sets goals.
        config: What makes it again.

    Raises ConfigError where it sets none.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], config: Environment) -> None:
        super().__init__(environment)
        self.config, self._goals = config, config.goals or Goals()
        self._goal: np.ndarray | None = None
        space = environment.observation_space
        if isinstance(space, gymnasium.spaces.Dict):
            if ASKED not in space.spaces:
                raise ConfigError(f"{config.id} sets no goal: its observations have no key {ASKED!r}.")
            if self._goals.part is not None:
                raise ConfigError(
                    f"{config.id} has its goal as a key of its observations, which is told whole: leave goals.part out."
                )
            self.observation_space = gymnasium.spaces.Dict(_shown(space.spaces))
            return
        goal = self._told(environment.reset()[1])
        kind: Any = goal.dtype
        goal_space = space if goal.shape == space.shape else gymnasium.spaces.Box(-np.inf, np.inf, goal.shape, kind)
        self.observation_space = gymnasium.spaces.Dict({SEEN: space, GOAL: goal_space})

    @property
    def spec(self) -> Any:
        return self.env.spec

    @property
    def tasks(self) -> tuple[int, ...]:
        return self._goals.tasks

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._goal = None if isinstance(observation, dict) else self._told(info)
        return self._beside(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        return self._beside(observation), *rest  # pyright: ignore[reportReturnType]

    def _told(self, info: dict[str, Any]) -> np.ndarray:
        if GOAL not in info:
            raise ConfigError(f"{self.config.id} sets no goal: a reset's info has no {GOAL!r}.")
        goal = np.asarray(info[GOAL])
        if (part := self._goals.part) is None:
            return goal
        if goal.ndim != 1 or not all(0 <= k < len(goal) for k in part):
            raise ConfigError(f"{self.config.id} sets goals of the shape {list(goal.shape)}, and goals.part is {list(part)}.")
        return goal[list(part)]

    def _beside(self, observation: Any) -> Any:
        if isinstance(observation, dict):
            return _shown(observation)
        return {SEEN: observation, GOAL: self._goal}


def _shown(parts: Any) -> dict[str, Any]:
    """Spaces or arrays by key, with the one that is asked for as the goal."""
    return {**{key: part for key, part in parts.items() if key != ASKED}, GOAL: parts[ASKED]}


def aimed(environment: Any, spec: Spec | None) -> Any:
    """The config of an environment with goals, where a policy of this spec sees one and it says nothing of them."""
    if spec is None or not has_goals(spec) or not isinstance(environment, str | Environment):
        return environment
    config = Environment(id=environment) if isinstance(environment, str) else environment
    return config if config.goals else config.model_copy(update={"goals": Goals()})


def goals_of(environment: Any) -> np.ndarray | None:
    """The goals that an environment sets, [n, G]: of its tasks, or of five episodes; None where it sets none, or shows pictures.

    Tasks are those that its config names, or as many as it says by `num_tasks`, as OGBench does.
    """
    inner = environment.unwrapped
    spaces = getattr(inner.observation_space, "spaces", {"": inner.observation_space})
    if any(len(getattr(space, "shape", None) or ()) > 1 for space in spaces.values()):
        return None
    known = task_options(environment, range(len(getattr(environment, "tasks", ()))))
    n, alone = int(getattr(inner, "num_tasks", 0) or 0), getattr(inner, "_reward_task_id", None)
    options = known or [{"task_id": k} for k in range(1, n + 1) if alone in (None, k)] or [None] * _EPISODES
    found: list[np.ndarray] = []
    for seed, option in enumerate(options):
        observation, info = environment.reset(seed=seed, options=option)
        shown = {**info, **observation} if isinstance(observation, dict) else info
        goal = np.asarray(shown.get(GOAL, shown.get(ASKED)))
        if goal.ndim != 1 or goal.dtype.kind not in "fiu":
            return None
        found.append(goal)
    return np.stack(found)


def task_options(environment: Any, episodes: Sequence[int]) -> list[dict[str, Any]] | None:
    """Options of the resets of these episodes, by their numbers, of an environment whose tasks come in turn; None: it has none."""
    while isinstance(environment, gymnasium.Wrapper) and not isinstance(environment, GoalObservation):
        environment = environment.env
    tasks = environment.tasks if isinstance(environment, GoalObservation) else ()  # others may have tasks of another kind
    return [{"task_id": tasks[k % len(tasks)]} for k in episodes] if tasks else None
