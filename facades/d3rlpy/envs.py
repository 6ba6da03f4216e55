"""d3rlpy's `envs`, of which scripts use the seeding; gymnasium has wrappers."""

from __future__ import annotations

from typing import Any


def seed_env(env: Any, seed: int) -> None:
    """Seeds an environment, and what its action space draws."""
    env.reset(seed=seed)
    env.action_space.seed(seed)
