"""d3rlpy's functions that give a dataset and its environment: `d3ray.datasets.get_cartpole()` and the like.

Datasets are those of the catalog (`d3ray datasets` lists them), downloaded and imported when they are first asked for.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
from gymnasium.wrappers import FrameStackObservation, ReshapeObservation

from d3ray.algos.environments.make import make
from d3ray.data.catalog import catalog
from d3ray.data.catalog.local import nearest
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Environment

from .mdp_dataset import MDPDataset

__all__ = ["get_atari", "get_cartpole", "get_d4rl", "get_dataset", "get_minari", "get_pendulum"]

Pair = tuple[MDPDataset, gymnasium.Env[Any, Any]]
# Where a name without a group is looked for, in this order.
_GROUPS = ("d4rl", "atari", "d3rlpy", "minari", "ogbench", "d3ray", "d3ray-mujoco", "d3ray-classic")


def get_cartpole(dataset_type: Literal["replay", "random"] = "replay", *, render_mode: str | None = None) -> Pair:
    """d3rlpy's CartPole data and `CartPole-v1`. `Dataset.open("d3ray/cartpole-replay")` is the like, and needs no network.

    Args:
        dataset_type: What a policy met while it was trained, or what a random one did.
        render_mode: As `get_dataset`'s.

    Raises:
        ConfigError, DataError, StorageError: as for `get_dataset`.
    """
    return get_dataset(f"d3rlpy/cartpole-{dataset_type}", render_mode=render_mode)


def get_pendulum(dataset_type: Literal["replay", "random"] = "replay", *, render_mode: str | None = None) -> Pair:
    """d3rlpy's Pendulum data and `Pendulum-v1`. `Dataset.open("d3ray/pendulum-replay")` is the like, and needs no network.

    Raises:
        ConfigError, DataError, StorageError: as for `get_dataset`.
    """
    return get_dataset(f"d3rlpy/pendulum-{dataset_type}", render_mode=render_mode)


def get_d4rl(env_name: str, *, render_mode: str | None = None) -> Pair:
    """A dataset of D4RL, such as "hopper-medium-v2", and gymnasium's nearest environment.

    Raises:
        ConfigError, DataError, StorageError: as for `get_dataset`.
    """
    return get_dataset(f"d4rl/{env_name}", render_mode=render_mode)


def get_minari(env_name: str, *, render_mode: str | None = None) -> Pair:
    """A dataset of Minari, such as "D4RL/door/human-v2", and the environment that it names.

    Raises:
        ConfigError, DataError, StorageError: as for `get_dataset`.
    """
    return get_dataset(f"minari/{env_name}", render_mode=render_mode)


def get_atari(env_name: str, num_stack: int | None = None, *, sticky_action: bool = True, render_mode: str | None = None) -> Pair:
    """One million steps of DQN Replay, such as "breakout-mixed-v0", and the game as frames of 84 × 84.

    Args:
        env_name: GAME-KIND-vRUN with a kind of `mixed` (the first million), `medium` (the tenth), `expert` (the last) or
            `epoch-1` … `epoch-50`, and a run of 0 to 4.
        num_stack: frames that an observation of the environment has, [num_stack, 84, 84]; None: one, [1, 84, 84], as the
            dataset's, which are stacked when they are drawn.
        sticky_action: a quarter of the steps repeat the action before, as when the data was recorded.
        render_mode: of the environment.

    Raises:
        ConfigError: the Atari games are not installed.
        ConfigError, DataError, StorageError: as for `get_dataset`.
    """
    name, game = _known(f"atari/{env_name}")
    assert game is not None
    settings = {} if sticky_action else {"repeat_action_probability": 0.0}
    frames = _make(game.model_copy(update={"kwargs": settings}), render_mode)
    # Channels take no further axis: stacked, [num_stack, 1, 84, 84] becomes [num_stack, 84, 84].
    stacked = frames if num_stack is None else ReshapeObservation(FrameStackObservation(frames, num_stack), (num_stack, 84, 84))
    return MDPDataset.open(name), stacked


def get_dataset(env_name: str, *, render_mode: str | None = None) -> Pair:
    """A dataset by its name, and its environment.

    Args:
        env_name: a catalog name, with its group or without: "d4rl/hopper-medium-v2" or "hopper-medium-v2".
        render_mode: of the environment.

    Raises:
        ConfigError: the dataset has no environment in gymnasium, or the environment's package is missing.
        DataError: there is no dataset of that name (the nearest is given), or its files are not what was published.
        StorageError: it cannot be downloaded.
    """
    name, environment = _known(env_name)
    made = _make(environment, render_mode) if environment else None  # before anything is downloaded
    dataset = MDPDataset.open(name)
    if made is None and dataset.environment is not None:
        made = _make(dataset.environment, render_mode)
    if made is None:
        raise ConfigError(f"{name} has no environment in gymnasium; Dataset.open({name!r}) gives the dataset alone.")
    return dataset, made


def _known(env_name: str) -> tuple[str, Environment | None]:
    """The full name, and the environment that the catalog says. Raises DataError: there is none of that name."""
    known = catalog()
    for name in (env_name, *(f"{group}/{env_name}" for group in _GROUPS)):
        if (entry := known.find(name)) is not None:
            return name, entry.environment
    raise DataError(f"There is no dataset {env_name!r}{nearest(env_name, known)}")


def _make(environment: Environment, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    kwargs = {**environment.kwargs, **({"render_mode": render_mode} if render_mode else {})}
    return make(environment.model_copy(update={"kwargs": kwargs})).single
