"""Small datasets, and a sweep over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from d3ray import Dataset
from d3ray.data.spec import Environment
from d3ray.platform.sweep.config import SweepConfig

SEARCH = {"algorithm.learning_rate": {"loguniform": [1e-5, 1e-2]}, "algorithm.gamma": {"choice": [0.9, 0.99]}}


def write_data(folder: Path) -> Path:
    """Two small datasets of CartPole's spaces, and one with continuous actions."""
    rng = np.random.default_rng(0)
    ends = np.zeros(400, bool)
    ends[19::20] = True
    for name in ("tiny", "other"):
        arrays = rng.normal(size=(400, 4)).astype(np.float32), rng.integers(0, 2, 400), np.ones(400, np.float32), ends
        Dataset.from_arrays(*arrays, environment=Environment(id="CartPole-v1"), name=name).write(folder / name)
    actions = rng.uniform(-1, 1, (400, 1)).astype(np.float32)
    Dataset.from_arrays(arrays[0], actions, arrays[2], ends, name="continuous").write(folder / "continuous")
    return folder


def sweep(data: Path, storage: Path, **changes: Any) -> SweepConfig:
    base: dict[str, Any] = {
        "name": "first",
        "dataset": str(data / "tiny"),
        "algorithm": {"name": "DQN", "encoder": {"name": "vector", "hidden_units": [8]}, "batch_size": 8},
        "n_steps": 40,
        "n_steps_per_epoch": 20,
        "seeds": (0, 1),
        "evaluation": {"holdout": 0.2, "episodes": 1},
        "objective": "holdout/td_error",
        "search": SEARCH,
        "budget": {"configurations": 6},
        "storage": str(storage),
    }
    return SweepConfig.checked({**base, **changes})
