"""A short way that costs, and policies that keep within a limit: python examples/within_a_limit.py [SEEDS] [STEPS], some minutes.

A point walks over a square, 0.1 a step, and earns by how far it comes to the right. A disc stands in its way: every step that ends
in the disc costs 1. Recorded are walks of three kinds, a third each: straight through the disc, around it, and about at random. An
episode has 24 steps, in which a walk straight through comes further, and may cost 2.

It prints what an episode earns and costs in the mean: of the data, of BC, TD3+BC and BCQ, which do not look at costs, and of those
that do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from d3ray import Dataset, Stack
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.registry import make_algorithm
from d3ray.data.spec import Box, Spec

STEPS, LIMIT, RADIUS = 24, 2.0, 0.45
SPEC = Spec(observation=Box(shape=(2,)), action=Box(shape=(2,), low=-1.0, high=1.0))
POLICIES: dict[str, dict[str, Any]] = {
    "BC": {"name": "BC"},
    "TD3PlusBC": {"name": "TD3PlusBC"},
    "BCQ": {"name": "BCQ"},
    "BCQLagrangian": {"name": "BCQLagrangian"},
    "CPQ": {"name": "CPQ"},
    "COptiDICE": {"name": "COptiDICE", "alpha": 0.05},
}


class Walk(gymnasium.Env[np.ndarray, np.ndarray]):
    """The walk; what a step costs is in its info, as Safety-Gymnasium's environments tell it."""

    observation_space = gymnasium.spaces.Box(-4.0, 4.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._step = np.array([-1.0, self.np_random.uniform(-0.3, 0.3)]), 0
        return self._place.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before, self._step = self._place[0], self._step + 1
        self._place = self._place + 0.1 * action / max(1.0, np.hypot(*action))
        cost = float(np.hypot(*self._place) < RADIUS)
        return self._place.astype(np.float32), float(self._place[0] - before), False, self._step == STEPS, {"cost": cost}


def ahead(place: np.ndarray, kind: int, side: float, rng: np.random.Generator) -> np.ndarray:
    """What one of the three kinds of walks does next."""
    if kind == 0:
        way = np.array([1.0, -place[1]])
    elif kind == 1:  # to a corner beside the disc, past it, and on
        goal = np.array([-0.45, 0.75 * side]) if place[0] < -0.5 else np.array([0.55, 0.75 * side]) if place[0] < 0.45 else None
        way = np.array([1.0, 0.0]) if goal is None else (goal - place) / 0.1
    else:
        way = rng.normal([0.3, 0.0], 1.0)
    return np.clip(way / max(1.0, np.hypot(*way)) + 0.2 * rng.standard_normal(2), -1, 1)


def recorded(n: int = 300, seed: int = 0) -> Dataset:
    """`n` walks, a third of each kind."""
    rng, walk = np.random.default_rng(seed), Walk()
    seen, done, earned, costs, final = ([] for _ in range(5))
    for k in range(n):
        place, side = walk.reset(seed=seed + k)[0], rng.choice([-1.0, 1.0])
        for _ in range(STEPS):
            action = ahead(place, k % 3, side, rng).astype(np.float32)
            seen.append(place)
            place, reward, _, _, info = walk.step(action)
            for column, value in zip((done, earned, costs), (action, reward, info["cost"]), strict=True):
                column.append(value)
        final.append(place)
    ends = np.arange(1, n * STEPS + 1) % STEPS == 0
    return Dataset.from_arrays(
        np.array(seen), np.array(done), np.array(earned), np.zeros_like(ends), ends,
        final_observations=np.array(final), extra={"cost": np.array(costs)}, spec=SPEC, name="walks",
    )  # fmt: skip


def trained(label: str, data: Dataset, n_steps: int, seeds: Sequence[int]) -> Stack:
    """One of `POLICIES` by each seed, with small layers."""
    algorithm = make_algorithm(POLICIES[label], device="cpu")
    known = algorithm.get_params()
    settings: dict[str, Any] = {name: {"hidden_units": [64, 64]} for name in known if name.endswith("_encoder")}
    settings["share_encoder"] = False
    settings |= {name: 1e-3 for name in known if name.endswith("learning_rate")}
    settings |= {"n_target_samples": 5, "n_action_samples": 10, "batch_size": 128, "cost_limit": LIMIT}
    settings = {name: value for name, value in settings.items() if name in known}
    return Stack(algorithm.set_params(**settings), tuple(seeds)).fit(data, n_steps, show_progress=False)


def played(label: str, data: Dataset, n_steps: int, seeds: Sequence[int], episodes: int = 20) -> np.ndarray:
    """What episodes of each seed's policy earn and cost in the mean, [seeds, 2]."""
    stack = trained(label, data, n_steps, seeds)
    found = [evaluate(stack.seed(k).policy(), Walk(), episodes=episodes, n_envs=1) for k in range(len(seeds))]
    return np.array([(one.mean, one.cost) for one in found])


def main(seeds: int = 5, n_steps: int = 2_000) -> None:
    data = recorded()
    earned = data.episodes.returns.mean()
    print(f"the data: an episode earns {earned:.2f} and costs {data.cost_returns.mean():.1f}; the limit is {LIMIT:g}")
    for label in POLICIES:
        earned, cost = played(label, data, n_steps, range(seeds)).T
        within = int((cost <= LIMIT).sum())
        spread = f"{cost.min():.1f} to {cost.max():.1f}"
        print(
            f"  {label:14} earns {earned.mean():5.2f}, costs {cost.mean():5.2f} ({spread}), {within} of {seeds} seeds within",
            flush=True,
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
