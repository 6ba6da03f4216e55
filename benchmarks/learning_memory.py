"""The learning table's studies of tasks that need memory: recurrent encoders beside plain ones, with all else the same."""

from __future__ import annotations

from typing import Any

import memory_tasks  # noqa: F401  # makes its tasks known
from learning_study import FIVE, Study

MAZE, POSITIONS = "TMaze-v0", "PositionCartPole-v0"
PLAIN: dict[str, Any] = {"hidden_units": [32]}
GRU: dict[str, Any] = {"name": "gru", "units": 32, "encoder": PLAIN}
WITHOUT_MEMORY = {MAZE: 0.1, POSITIONS: 100.0}  # what at most is asked of a policy that does not remember
TOLD = {
    MAZE: "A T-maze with a corridor of 7 (`benchmarks/memory_tasks.py`): 1 is every turn right, and 0.1 what a policy without "
    "memory can reach in these episodes, by turning always to the same side; in the mean over all it is 0. ",
    POSITIONS: "CartPole-v1 without velocities (`benchmarks/memory_tasks.py`). Of 360 policies that push to where a line through "
    "x and θ says, the best stays up for 47.7 steps in these episodes; nobody has said what any policy without memory can reach. ",
}
TUNED = "Settings were tried with seeds 1000 to 1002."


def ppo(encoder: dict[str, Any], rollout: int, batch_size: int, n_passes: int, **settings: Any) -> dict[str, Any]:
    pieces = {"sequence_length": 32} if encoder is GRU else {}
    sizes = {"update_interval": rollout, "batch_size": batch_size, "n_passes": n_passes, "learning_rate": 3e-3, "gamma": 0.98}
    return {
        "name": "PPO",
        "policy_encoder": encoder,
        "value_encoder": encoder,
        **sizes,
        "entropy_weight": 0.01,
        **pieces,
        **settings,
    }


def dqn(encoder: dict[str, Any], sampler: dict[str, Any] | None, batch_size: int, **settings: Any) -> dict[str, Any]:
    drawn = {"sampler": {"name": "recurrent", **sampler}} if sampler else {}
    rates = {"optimizer": "adam", "learning_rate": 1e-3, "gamma": 0.95, "target_update_interval": 100}
    return {"name": "DQN", "encoder": encoder, **drawn, "batch_size": batch_size, **rates, **settings}


def _study(name: str, environment: str, algorithm: dict[str, Any], n_steps: int, note: str, **more: Any) -> Study:
    """One of a task: a recurrent one has to solve it, another to stay below what it can."""
    remembers = "gru" in name or "drqn" in name
    solved = {MAZE: 1.0, POSITIONS: 475.0}[environment]
    asked: dict[str, Any] = {"at_least": solved} if remembers else {"at_least": None, "at_most": WITHOUT_MEMORY[environment]}
    return Study(
        name=name,
        data=more.pop("data", None),
        environment=environment,
        algorithm=algorithm,
        peer=None,
        n_steps=n_steps,
        every=n_steps // 5,
        note=f"{TOLD[environment]}{note} {TUNED}",
        seeds=FIVE,
        episodes=100,
        **asked,
        **more,
    )


EIGHT = {"n_envs": 8}
WANDERS: dict[str, Any] = {"name": "epsilon_greedy", "end": 0.05, "duration": 1_500}
ACTED: dict[str, Any] = {**EIGHT, "update_interval": 2, "update_start_step": 100, "explorer": WANDERS, "capacity": 20_000}
EPISODES = {"length": 16, "burn_in": 0}
ON_MAZE = "30,720 steps of eight environments."
OFF_MAZE = "An update after every 16 steps of eight environments, 32,800 steps in all."
CLONED = "5,000 steps of who remembers, a fifth of whose actions are random."
FALLS = {"name": "adam", "schedule": {"name": "linear", "duration": 1_600}}
ON_POSITIONS = "81,920 steps of eight environments, and a rate that falls to 0."

MEMORY = (
    _study("t-maze-drqn", MAZE, dqn(GRU, EPISODES, 16), 2_000, f"DQN with a GRU. {OFF_MAZE}", online=ACTED, stacked=True),
    _study("t-maze-dqn", MAZE, dqn(PLAIN, None, 128), 2_000, f"DQN without memory. {OFF_MAZE}", online=ACTED, stacked=True),
    _study("t-maze-ppo-gru", MAZE, ppo(GRU, 512, 256, 8), 960, f"PPO with GRUs. {ON_MAZE}", online=EIGHT),
    _study("t-maze-ppo", MAZE, ppo(PLAIN, 512, 256, 8), 960, f"PPO without memory. {ON_MAZE}", online=EIGHT),
    _study(
        "t-maze-bc-gru",
        MAZE,
        {"name": "DiscreteBC", "encoder": GRU, "sampler": {"name": "recurrent", **EPISODES}, "batch_size": 32},
        1_000,
        f"DiscreteBC with a GRU, offline. {CLONED}",
        data="t-maze",
        stacked=True,
    ),
    _study(
        "t-maze-bc",
        MAZE,
        {"name": "DiscreteBC", "encoder": PLAIN, "batch_size": 256},
        1_000,
        f"DiscreteBC without memory, offline. {CLONED}",
        data="t-maze",
        stacked=True,
    ),
    _study(
        "positions-ppo-gru",
        POSITIONS,
        ppo(GRU, 1_024, 512, 10, optimizer=FALLS),
        1_600,
        f"PPO with GRUs. {ON_POSITIONS}",
        online=EIGHT,
    ),
    _study(
        "positions-ppo",
        POSITIONS,
        ppo(PLAIN, 1_024, 512, 10, optimizer=FALLS),
        1_600,
        f"PPO without memory. {ON_POSITIONS}",
        online=EIGHT,
    ),
)
