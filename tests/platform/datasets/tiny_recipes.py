"""Recipes of a few hundred steps, as a team's catalog has them: six datasets each of runs of SAC and of one of DQN."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from d3ray.data.catalog.recipe import KINDS

SMALL = {"hidden_units": [16, 16]}
TINY = {
    "steps": 300,
    "warmup": 40,
    "evaluations": 6,
    "episodes": 2,
    "sac": {"batch_size": 16, "actor_encoder": SMALL, "critic_encoder": SMALL, "actor_learning_rate": 3e-3},
}
DQN = {
    **{name: value for name, value in TINY.items() if name != "sac"},
    "agent": {"name": "DQN", "batch_size": 16, "encoder": {"name": "vector", **SMALL}, "learning_rate": 3e-3},
    "explorer": {"name": "epsilon_greedy", "start": 1.0, "end": 0.5, "duration": 200},
    "update_interval": 20,
    "n_updates": 10,
}


def write_catalog(file: Path, **more: Any) -> Path:
    """A catalog with `tiny/hopper-KIND`, `tiny/pendulum-KIND`, `tiny/cartpole-KIND` and further entries, for D3RAY_CATALOG."""
    entries: dict[str, Any] = {
        f"tiny/{task}-{kind}": {"environment": {"id": environment}, "recipe": {**recipe, "kind": kind}}
        for task, environment, recipe in (
            ("hopper", "Hopper-v4", TINY),
            ("pendulum", "Pendulum-v1", TINY),
            ("cartpole", "CartPole-v1", DQN),
        )
        for kind in KINDS
    }
    file.write_text(json.dumps({"entries": entries | {name.replace("__", "/"): entry for name, entry in more.items()}}))
    return file
