"""What training on a dataset takes: memory for its columns, and the time of updates measured elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .survey import Column

BATCH = 256
N_STEPS = 500_000
# Updates a second of whole `fit` calls, medians of benchmarks/results/speed.md: two threads of an AMD EPYC, no accelerator.
MEASURED = {  # by kind of action
    "continuous": {"TD3+BC, batch 256, 256x256": 253.0},
    "discrete": {"DQN, batch 32, 256x256": 920.0},
}
MACHINE = "two CPU threads (AMD EPYC)"


@dataclass(frozen=True)
class Estimate:
    """Bytes and hours."""

    column_bytes: Mapping[str, int]  # of the node map, which trials of a machine share; of a GPU, when it holds the columns
    total_bytes: int
    batch_bytes: int  # of 256 transitions with their next observations
    hours: Mapping[str, float]  # of 500,000 updates, by what was measured
    machine: str = MACHINE

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def estimate(columns: Mapping[str, Column], n_rows: int, action_kind: str) -> Estimate:
    row = {name: np.dtype(c.dtype).itemsize * int(np.prod(c.shape, dtype=np.int64)) for name, c in columns.items()}
    row |= dict.fromkeys(("terminated", "truncated", "closing"), 1)
    whole = {name: size * n_rows for name, size in row.items()}
    seen = sum(size for name, size in row.items() if name.split("/")[0] == "observation")
    hours = {name: N_STEPS / speed / 3600 for name, speed in MEASURED.get(action_kind, {}).items()}
    return Estimate(whole, sum(whole.values()), BATCH * (2 * seen + row["action"] + row["reward"]), hours)
