"""Recipes of a few hundred steps, as a team's catalog has them: all six datasets of a run in Hopper, and of one in Pendulum."""

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


def write_catalog(file: Path, **more: Any) -> Path:
    """A catalog with `tiny/hopper-KIND`, `tiny/pendulum-KIND` and further entries, for D3RAY_CATALOG."""
    entries: dict[str, Any] = {
        f"tiny/{task}-{kind}": {"environment": {"id": environment}, "recipe": {**TINY, "kind": kind}}
        for task, environment in (("hopper", "Hopper-v4"), ("pendulum", "Pendulum-v1"))
        for kind in KINDS
    }
    file.write_text(json.dumps({"entries": entries | {name.replace("__", "/"): entry for name, entry in more.items()}}))
    return file
