"""A small world whose decisions tests log: one observation of two numbers, two actions, and the second number pays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from d3ray import Dataset
from d3ray.data.decision_log import DecisionRows, DecisionWriter, Outcome, OutcomeLedger
from d3ray.data.spec import Box, Discrete, Spec

SPEC = Spec(observation=Box(shape=(2,)), action=Discrete(n=2))
EPSILON = 0.2


def recorded(episodes: int = 200, steps: int = 3, seed: int = 0) -> Dataset:
    """Data of uniform actions in the world as it was."""
    seen, action, reward = world(np.random.default_rng(seed), episodes, steps)
    cut = np.tile(np.arange(steps) == steps - 1, episodes)
    return Dataset.from_arrays(
        seen.reshape(-1, 2), action.reshape(-1), reward.reshape(-1), np.zeros(len(cut), bool), cut, spec=SPEC, name="recorded"
    )


def world(rng: np.random.Generator, episodes: int, steps: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations [E, T, 2], uniform actions and rewards: action 1 pays the second number, action 0 nothing."""
    seen = (rng.standard_normal((episodes, steps, 2)) + np.array([shift, 0.0])).astype(np.float32)
    action = rng.integers(0, 2, (episodes, steps))
    return seen, action, np.where(action == 1, seen[..., 1], 0.0)


def serve(
    folder: Path | str,
    episodes: int,
    *,
    steps: int = 3,
    seed: int = 1,
    shift: float = 0.0,
    version: str = "1",
    role: str = "champion",
    begin: float = 0.0,
    log_prob: bool = True,
    spool: Path | None = None,
) -> None:
    """Log episodes that end, a minute apart: the greedy action takes what pays, and with ε = 0.2 a uniform one."""
    rng = np.random.default_rng(seed)
    seen, drawn, _ = world(rng, episodes, steps, shift)
    greedy = (seen[..., 1] > 0).astype(np.int64)
    action = np.where(rng.random(greedy.shape) < EPSILON, drawn, greedy)
    probability = np.where(action == greedy, 1 - EPSILON / 2, EPSILON / 2)
    writer, ledger = DecisionWriter(folder, SPEC, policy="shop", spool=spool), OutcomeLedger(folder, SPEC, spool=spool)
    try:
        for e in range(episodes):
            key = f"{version}-{seed}-{e}"
            writer.append(
                DecisionRows(
                    version=version,
                    role=role,
                    episode=[key] * steps,
                    step=np.arange(steps),
                    observation=seen[e],
                    action=action[e],
                    log_prob=np.log(probability[e]) if log_prob else None,
                    reason=["late"] * steps if role == "fallback" else None,
                    time=begin + 60 * e,
                )
            )
            paid = np.where(action[e] == 1, seen[e, :, 1], 0.0)
            told = [Outcome(reward=float(paid[k]), episode=key, step=k, truncated=k == steps - 1) for k in range(steps)]
            if role == "shadow":  # which does nothing that could have an outcome
                continue
            assert {answer.status for answer in ledger.record(told)} == {"recorded"}
    finally:
        ledger.close()
        writer.close()
