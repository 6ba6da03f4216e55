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
TUNED = "Settings were tried with seeds from 1000 on."


def ppo(encoder: dict[str, Any], rollout: int, batch_size: int, n_passes: int, **settings: Any) -> dict[str, Any]:
    pieces = {"sequence_length": 32} if encoder.get("name") == "gru" else {}
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
FALLS: dict[str, Any] = {"name": "adam", "epsilon": 1e-5, "max_grad_norm": 0.5}
FALLS["schedule"] = {"name": "linear", "duration": 3_900}
ON_POSITIONS = (
    "99,840 steps of eight environments, and a rate that falls to 0. Without clipped gradients, without a layer after the GRUs and "
    "with twice the rate, five seeds with them had ended at 457.9, 500.0, 440.2, 190.5 and 236.7, and five without memory at 45.5 "
    "to 47.1."
)
SOONER: dict[str, Any] = {**WANDERS, "duration": 800}
WITHIN = {"name": "min_max", "minimum": [-2.4, -0.21], "maximum": [2.4, 0.21]}
TRIED = (
    "In the mean it comes further than what does not remember, and no seed balances. Twice the updates with a rate that falls, and "
    "Double DQN with γ = 0.99 and soft updates of the target, did not balance either, on two seeds each."
)


def on_positions(encoder: dict[str, Any]) -> dict[str, Any]:
    """RL Baselines3 Zoo's of CartPole-v1 with half the passes, scaled observations, clipped gradients and clipping that stays."""
    scaled = {"lam": 0.8, "learning_rate": 1e-3, "entropy_weight": 0.0, "observation_scaler": "running", "optimizer": FALLS}
    return ppo(encoder, 256, 256, 10, **scaled)


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
        "positions-drqn",
        POSITIONS,
        dqn(GRU, {"length": 16, "burn_in": 4}, 32, target_update_interval=200, observation_scaler=WITHIN),
        5_000,
        f"DQN with a GRU, eight updates after every 32 steps of eight environments, 20,992 steps in all. {TRIED}",
        online={**ACTED, "update_interval": 4, "n_updates": 8, "update_start_step": 128, "explorer": SOONER, "capacity": 50_000},
        stacked=True,
    ),
    _study(
        "positions-ppo-gru",
        POSITIONS,
        on_positions({**GRU, "head_units": [64]}),
        3_900,
        f"PPO with GRUs. {ON_POSITIONS}",
        online=EIGHT,
    ),
    _study(
        "positions-ppo",
        POSITIONS,
        on_positions({"hidden_units": [32, 64]}),
        3_900,
        f"PPO without memory. {ON_POSITIONS}",
        online=EIGHT,
    ),
)
