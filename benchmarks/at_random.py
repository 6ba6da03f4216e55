"""What random actions return in an environment, in the evaluation of the learning table: below it nothing was learned.

Played once and kept in `benchmarks/results/at_random.json`; delete an entry to play it again.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from workers import HERE

from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.environments.explorers import random_actions
from d3ray.algos.environments.make import make

KEPT = HERE / "results" / "at_random.json"


class AtRandom:
    """A policy of uniform random actions, drawn by (seed, step)."""

    def __init__(self, space: Any, seed: int) -> None:
        self.space, self.seed, self.drawn = space, seed, 0

    def start(self, n: int) -> None:
        """Nothing is remembered of an episode."""

    def step(self, state: None, observation: np.ndarray) -> tuple[None, np.ndarray]:
        self.drawn += 1
        return None, random_actions(self.space, len(observation), step=self.drawn, seed=self.seed)


def at_random(environment: str, episodes: int, seed: int) -> float:
    """The mean return over the episodes that an evaluation with `seed` resets."""
    kept: dict[str, dict[str, float]] = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    found = kept.setdefault(environment, {})
    if str(episodes) not in found:
        vector = make(environment)
        vector.close()
        played = evaluate(AtRandom(vector.spec.action, seed), environment, episodes=episodes, seed=seed)
        found[str(episodes)] = played.mean
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return found[str(episodes)]
