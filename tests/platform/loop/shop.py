"""A shop: visitors of two numbers, two offers, and an offer sells where the second number says so. Tastes may change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from d3ray import Dataset
from d3ray.algos.export.package import read_package
from d3ray.data.decision_log import DecisionRows, DecisionWriter, Outcome, OutcomeLedger
from d3ray.data.spec import Box, Discrete, Spec
from d3ray.platform.tracking.registered import registered_package

SPEC = Spec(observation=Box(shape=(2,)), action=Discrete(n=2))
EPSILON = 0.3


def sold(seen: np.ndarray, action: np.ndarray, taste: float = 1.0) -> np.ndarray:
    """1 where the offer is the one that the visitor's second number asks for, of which `taste` is the sign."""
    return ((seen[:, 1] * taste > 0).astype(np.int64) == action).astype(np.float64)


def recorded(visitors: int = 2_000, seed: int = 0) -> Dataset:
    """Offers at random, with how probable each was."""
    rng = np.random.default_rng(seed)
    seen, action = rng.standard_normal((visitors, 2)).astype(np.float32), rng.integers(0, 2, visitors)
    ends, none = np.ones(visitors, bool), np.zeros(visitors, bool)
    extra = {"log_prob": np.full(visitors, np.log(0.5), np.float32)}
    return Dataset.from_arrays(seen, action, sold(seen, action), ends, none, spec=SPEC, extra=extra, name="recorded")


def visit(
    folder: Path,
    storage: Path,
    version: str,
    visitors: int,
    seed: int,
    role: str = "champion",
    taste: float = 1.0,
    begin: float = 0.0,
) -> float:
    """Let a registered version serve visitors, with ε = 0.3; return the share that bought."""
    rng = np.random.default_rng(seed)
    seen = rng.standard_normal((visitors, 2)).astype(np.float32)
    with registered_package(f"models:/shop/{version}", storage=str(storage)) as package:
        policy: Any = read_package(package)
    greedy = np.asarray(policy.step(policy.start(visitors), seen)[1] if hasattr(policy, "step") else policy(seen)).reshape(-1)
    action = np.where(rng.random(visitors) < EPSILON, rng.integers(0, 2, visitors), greedy)
    probability = np.where(action == greedy, 1 - EPSILON / 2, EPSILON / 2)
    bought = sold(seen, action, taste)
    writer, ledger = DecisionWriter(folder, SPEC, policy="shop"), OutcomeLedger(folder, SPEC)
    try:
        keys = [f"{version}-{role}-{seed}-{k}" for k in range(visitors)]
        writer.append(
            DecisionRows(
                version=version,
                role=role,
                episode=keys,
                step=np.zeros(visitors, np.int64),
                observation=seen,
                action=action,
                log_prob=np.log(probability),
                time=begin or None,
            )
        )
        told = [Outcome(reward=float(one), episode=key, step=0, terminated=True) for one, key in zip(bought, keys, strict=True)]
        assert {answer.status for answer in ledger.record(told)} == {"recorded"}
    finally:
        ledger.close()
        writer.close()
    return float(bought.mean())


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    """A loop that learns in seconds."""
    learner = {"name": "DiscreteIQL", "batch_size": 64}
    train = {"algorithm": learner, "n_steps": 600, "n_steps_per_epoch": 300, "evaluation": {"holdout": 0.2}}
    return {
        "name": "shop",
        "log": str(folder / "log"),
        "dataset": str(folder / "data"),
        "base": str(folder / "recorded"),
        "storage": str(folder / "results"),
        "train": train,
        "judge": {"n_steps": 0},
        **more,
    }
