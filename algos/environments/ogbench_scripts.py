"""Episodes of OGBench's scripted policies, after the repository's `data_gen_scripts` at 1d41409.

Manipulators follow plans with smoothed noise from one target to the next ("play"), or a closed loop with noise of another size in
each episode and some random actions ("noisy"). Points go by the waypoints of a maze to one goal after the other ("navigate"), or
to one that is four cells away ("stitch"). An episode follows from its seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np

from ...data.catalog.recipe import Script
from ...data.storage.steps import StepTable, steps_from_arrays
from .ogbench import known_as, numbers, seeded, with_one_action_space

_OBJECTS = {"cube": ("cube",), "scene": ("cube", "button", "drawer", "window"), "puzzle": ("button",)}
_STACKED = {"single": (0.0, 0.0), "double": (0.0, 0.25), "triple": (0.05, 0.35), "quadruple": (0.1, 0.5), "octuple": (0.0, 0.35)}
_NOISE = np.array([1, 1, 1, 3, 10])  # of a noisy manipulator's actions, in shares of the episode's
_MIN_NORM = 0.4
_SMOOTHING = 0.5
_AWAY = 4  # cells, of a point that stitches
_Row = tuple[Any, np.ndarray, dict[str, Any]]  # an observation, the action, and the info of the step


def episodes(script: Script, seeds: Sequence[int]) -> Iterator[StepTable]:
    """Yield an episode for each seed, with the states before its steps as info/qpos, info/qvel and info/button_states.

    Raises ImportError where OGBench is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how: dict[str, Any] = {} if script.environment.startswith("pointmaze-") else {"mode": "data_collection"}
        environment = gymnasium.make(
            known_as(script.environment),
            disable_env_checker=True,
            terminate_at_goal=False,
            max_episode_steps=script.episode + 1,
            **how,
        )
        act: Callable[[Script, Any, int], tuple[list[_Row], Any]] = _manipulate if how else _go
        for seed in seeds:
            with numbers(seeded(seed)):
                with_one_action_space(environment).seed(seed)
                rows, final = act(script, environment, seed)
            yield _table(rows, final)
        environment.close()


def _table(rows: Sequence[_Row], final: Any) -> StepTable:
    observations, actions, infos = zip(*rows, strict=True)
    n = len(rows)
    names = [name for name in ("qpos", "qvel", "button_states") if f"prev_{name}" in infos[0]]
    return steps_from_arrays(
        np.stack(observations),
        np.stack(actions).astype(np.float32),
        np.zeros(n, np.float32),
        np.zeros(n, bool),
        np.arange(n) == n - 1,
        final_observations=final[None],
        extra={f"info/{name}": np.stack([info[f"prev_{name}"] for info in infos]) for name in names},
        source="OGBench's environment",
    )


# ---- manipulators


def _manipulate(script: Script, environment: Any, seed: int) -> tuple[list[_Row], Any]:
    """One episode; of a scene until one is healthy, in which the cube can always be seen."""
    agents = _agents(script, environment)
    given: int | None = seed
    while True:
        rows, final = _manipulated(script, environment, agents, given)
        if not script.scene.startswith("scene") or _healthy(np.stack([info["prev_qpos"] for _, _, info in rows])):
            return rows, final
        given = None  # go on drawing


def _manipulated(script: Script, environment: Any, agents: dict[str, Any], seed: int | None) -> tuple[list[_Row], Any]:
    observation, info = environment.reset(seed=seed)
    low, high = _STACKED.get(script.scene.split("-")[1], (0.5, 0.5))
    stacked = np.random.uniform(low, high)
    noise = np.random.uniform(0, script.noise) * _NOISE if script.kind == "noisy" else None
    agent = agents[info["privileged/target_task"]]
    agent.reset(observation, info)
    rows: list[_Row] = []
    for _ in range(script.episode):
        if np.random.rand() < script.random:
            action = environment.action_space.sample()
        else:
            action = np.array(agent.select_action(observation, info))
            action = action if noise is None else action + np.random.normal(0, noise, action.shape)
        action = np.clip(action, -1, 1)
        following, _, _, _, info = environment.step(action)
        if agent.done:
            target, about = environment.unwrapped.set_new_target(p_stack=stacked)
            agent = agents[about["privileged/target_task"]]
            agent.reset(target, about)
        rows.append((observation, action, info))
        observation = following
    return rows, observation


def _agents(script: Script, environment: Any) -> dict[str, Any]:
    """Make the oracle of each kind of object."""
    scene = script.scene.split("-")[0]
    way = "plan" if script.kind == "play" else "markov"
    how: dict[str, Any] = {"noise": script.noise, "noise_smoothing": _SMOOTHING} if way == "plan" else {"min_norm": _MIN_NORM}
    found: dict[str, Any] = {}
    for kind in _OBJECTS[scene]:
        oracle = getattr(
            import_module(f"ogbench.manipspace.oracles.{way}.{kind}_{way}"), f"{kind.capitalize()}{way.capitalize()}Oracle"
        )
        own: dict[str, Any] = {"gripper_always_closed": True} if scene == "puzzle" else {}
        own |= {"max_step": 100} if (scene, kind, way) == ("scene", "cube", "markov") else {}
        found[kind] = oracle(env=environment, **how, **own)
    return found


def _healthy(qpos: np.ndarray) -> bool:
    """Whether a scene's cube stays where it can be seen, or in the drawer."""
    y, z = qpos[:, 15], qpos[:, 16]
    return not ((y >= 0.29) | ((y <= -0.3) & ((z < 0.06) | (z > 0.08)))).any()


# ---- points


def _go(script: Script, environment: Any, seed: int) -> tuple[list[_Row], Any]:
    maze = environment.unwrapped
    free = maze.maze_map == 0
    cells = [(int(i), int(j)) for i, j in np.argwhere(free)]
    crossings = [cell for cell in cells if not _is_hallway(free, *cell)]

    def one_of(choice: Sequence[tuple[int, int]]) -> tuple[int, int]:
        return choice[np.random.randint(len(choice))]

    start = one_of(cells)
    goal = one_of(crossings if script.kind == "navigate" else _away(free, start) or [start])
    observation, _ = environment.reset(seed=seed, options={"task_info": {"init_ij": start, "goal_ij": goal}})
    rows: list[_Row] = []
    for _ in range(script.episode):
        here = maze.get_xy()
        way = maze.get_oracle_subgoal(here, maze.cur_goal_xy)[0] - here
        action = way / (np.linalg.norm(way) + 1e-6)
        action = np.clip(action + np.random.normal(0, script.noise, action.shape), -1, 1)
        following, _, _, _, info = environment.step(action)
        if info["success"] and script.kind == "navigate":
            maze.set_goal(one_of(crossings))
        rows.append((observation, action, info))
        observation = following
    return rows, observation


def _is_hallway(free: np.ndarray, i: int, j: int) -> bool:
    up_and_down, sides = (free[i - 1, j], free[i + 1, j]), (free[i, j - 1], free[i, j + 1])
    return (all(up_and_down) and not any(sides)) or (all(sides) and not any(up_and_down))


def _away(free: np.ndarray, start: tuple[int, int]) -> list[tuple[int, int]]:
    """List the cells that are four steps away."""
    seen, reached = {start}, [start]
    for _ in range(_AWAY):
        around = [(i + di, j + dj) for i, j in reached for di, dj in ((-1, 0), (0, -1), (1, 0), (0, 1))]
        reached = [cell for cell in dict.fromkeys(around) if free[cell] and cell not in seen]
        seen |= set(reached)
    return reached
