"""Packages that environments come from: what makes their ids known, which extra of d3ray installs them, and what is mended."""

from __future__ import annotations

import importlib
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np

from .display import load_mujoco
from .ogbench import OGBench, is_ogbench, known_as

_EXTRAS = {
    "ALE/": "atari",
    "ale_py": "atari",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.box2d": "box2d",
    "MinAtar/": "minatar",
}
_ROBOTICS = ("AdroitHand", "AntMaze_", "Fetch", "FrankaKitchen", "HandManipulate", "HandReach", "PointMaze_")  # ids begin so


def register(name: str) -> str:
    """Makes the ids known of a package that gymnasium does not look for, and gives the one that is meant by a name.

    Raises ImportError where the package is not installed, and ConfigError where it is and has no such task, or does not load.
    """
    if is_ogbench(name):
        load_mujoco(name)
    if name in gymnasium.registry:
        return name
    if is_ogbench(name):
        return known_as(name)
    if name.startswith("MinAtar/"):
        from minatar.gym import register_envs

        register_envs()
    elif name.startswith("ALE/"):
        _register_atari()
    else:
        with suppress(ImportError):  # its older ids, such as PongNoFrameskip-v4, say nothing of where they are from
            _register_atari()
    return name


def _register_atari() -> None:
    ale = importlib.import_module("ale_py")
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)  # otherwise each game greets on stderr
    gymnasium.register_envs(ale)


def extra_of(name: str) -> str | None:
    module = str(gymnasium.registry[name].entry_point) if name in gymnasium.registry else ""
    found = next((extra for start, extra in _EXTRAS.items() if module.startswith(start) or name.startswith(start)), None)
    return "ogbench" if found is None and is_ogbench(name) else found


def missing_extra(name: str) -> str | None:
    """The extra whose package would make an id known, were it installed; None where that is not what is missing."""
    return "robotics" if name.startswith(_ROBOTICS) and find_spec("gymnasium_robotics") is None else None


def wrapped(name: str, environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    if str(gymnasium.registry[name].entry_point).startswith("ogbench."):
        return OGBench(environment)
    return MinAtar(environment) if name.startswith("MinAtar/") else environment


def tells_success(name: str) -> bool:
    """Whether an environment is known to say at an episode's end if its task was solved; others may, too."""
    return is_ogbench(name) or (name.startswith(_ROBOTICS) and not name.startswith("FrankaKitchen"))


class MinAtar(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A game of MinAtar (Young and Tian 2019, arXiv:1903.03176) as images of bytes 0 and 1, [channels, 10, 10].

    The games show [10, 10, channels], of which one with ten channels does not say where they are. They repeat the action before
    with probability 0.1, the last one of the episode before too: that one is forgotten here, so that an episode follows from its
    seed and its actions alone.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        super().__init__(environment)
        height, width, channels = environment.observation_space.shape or (10, 10, 0)
        self.observation_space = gymnasium.spaces.Box(0, 1, (channels, height, width), np.uint8)

    @property
    def spec(self) -> Any:
        """The id's own: making it again wraps it again."""
        return self.env.spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        game: Any = self.env.unwrapped
        game.game.last_action = 0
        observation, info = self.env.reset(seed=seed, options=options)
        return self._first(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._first(observation), reward, terminated, truncated, info

    def _first(self, observation: np.ndarray) -> np.ndarray:
        return observation.transpose(2, 0, 1).astype(np.uint8)
