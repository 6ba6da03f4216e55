"""OGBench's environments (Park et al. 2025, arXiv:2410.20092) by its names, such that an episode follows from its seed.

The names of its datasets are names here too: `cube-single-play-singletask-task2-v0` is the environment that it registers as
`cube-single-singletask-task2-v0`.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium
import numpy as np

from ...data.errors import ConfigError
from ...data.formats.npz.ogbench_tasks import without_kind
from .display import seen

_NAME = re.compile(
    r"(visual-)?("
    r"((point|ant|humanoid)maze-(medium|large|giant|teleport)|antsoccer-\w+)(-(navigate|stitch|explore))?"  # D4RL's: play, umaze
    r"|(cube-\w+|scene|puzzle-\w+|powderworld-\w+)(-(play|noisy))?"
    r")(-singletask(-task\d+)?)?-v0"
)
_TASK = re.compile(r"-task\d+(?=-v0$)")


_BEGINS = ("pointmaze-", "antmaze-", "humanoidmaze-", "antsoccer-", "cube-", "scene-", "puzzle-", "powderworld-", "visual-")


def known_names(name: str) -> None:
    """Make OGBench's ids known, where it is installed and a name begins as one of them, so that the nearest can be said."""
    if name.startswith(_BEGINS):
        with suppress(ImportError):
            importlib.import_module("ogbench")


def is_ogbench(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def known_as(name: str) -> str:
    """The id under which gymnasium has it, once the package is imported.

    Raises ImportError where that is not installed, and ConfigError for a task beyond the five.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports one looks for a display and says that there is none
        importlib.import_module("ogbench")
    if name in gymnasium.registry:
        return name
    found = without_kind(name)
    if found not in gymnasium.registry and _TASK.sub("-task1", found) in gymnasium.registry:
        raise ConfigError(f"OGBench has five tasks in an environment, task1 to task5, and {name!r} would be another.")
    return found if found in gymnasium.registry else name


@contextmanager
def numbers(state: Any) -> Generator[list[Any]]:
    """Let NumPy's own generator, from which OGBench draws, go on from a state; what is given has the state that it came to."""
    before, after = np.random.get_state(), [state]
    np.random.set_state(state)
    try:
        yield after
    finally:
        after[0] = np.random.get_state()
        np.random.set_state(before)


def seeded(seed: int | None) -> Any:
    return np.random.RandomState(seed).get_state()


def with_one_action_space(environment: gymnasium.Env[Any, Any]) -> gymnasium.spaces.Space[Any]:
    """Make an environment keep its space of actions, from which it draws in a reset: manipulators make another each time."""
    inner: Any = environment.unwrapped
    kind, space = type(inner), inner.action_space
    if isinstance(getattr(kind, "action_space", None), property):
        inner.__class__ = type(kind.__name__, (kind,), {"action_space": space, "__module__": kind.__module__})
    return space


class OGBench(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that draws from generators of its own, where OGBench's draw from ones that all share and no seed sets."""

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        super().__init__(environment)
        inner: Any = environment.unwrapped
        self._space, self._numbers = with_one_action_space(environment), seeded(None)
        self._n_tasks = int(getattr(inner, "num_tasks", 0))
        self._name = str(getattr(environment.spec, "id", ""))
        self._check(getattr(inner, "_reward_task_id", None))

    @property
    def spec(self) -> Any:
        """The id's own: making it again wraps it again."""
        return self.env.spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._check((options or {}).get("task_id"))
        if seed is not None:
            self._numbers = seeded(seed)
            self._space.seed(seed)
        with seen(self._name), numbers(self._numbers) as after:
            shown = self.env.reset(seed=seed, options=options)
        self._numbers = after[0]
        return shown

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with numbers(self._numbers) as after:
            result = self.env.step(action)
        self._numbers = after[0]
        return result

    def _check(self, task: int | None) -> None:
        if task is not None and self._n_tasks and not 1 <= task <= self._n_tasks:
            raise ConfigError(f"The task is {task}; this environment of OGBench has the tasks 1 to {self._n_tasks}.")
        own = getattr(self.env.unwrapped, "_reward_task_id", None)
        if task is not None and own is not None and task != own:
            raise ConfigError(
                f"The task is {task}; this environment of OGBench is of task {own} alone: choose one without singletask."
            )
