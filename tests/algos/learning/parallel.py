"""A process of several that train algorithms together: started by `test_data_parallel`.

    python parallel.py RANK SIZE FOLDER NAME...

Each leaves its state and metrics in FOLDER as NAME-RANK.pt, or the error as NAME-RANK.txt.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed as dist

from d3ray import Dataset
from d3ray.algos import testing
from d3ray.algos.registry import algorithm_class
from d3ray.algos.stack import Stack

STEPS = 6
BATCH = 22  # a shard of eleven samples is as long as no other axis
VARIANTS: dict[str, dict[str, Any]] = {
    "prioritized": {"sampler": "prioritized"},
    "stack": {},
    "float32": {"dtype": "float32"},
    "pixels": {"dtype": "float32", "encoder": {"name": "pixel", "filters": [[4, 8, 4], [4, 4, 2]], "feature_size": 8}},
    "drift": {},
    "odd": {"batch_size": 21},
}


def images() -> Dataset:
    """Transitions that show images of 36 × 36."""
    rng, n = np.random.default_rng(0), 120
    terminals = np.zeros(n, bool)
    terminals[9::10] = True
    pixels = rng.integers(0, 256, (n, 1, 36, 36), np.uint8)
    return Dataset.from_arrays(pixels, rng.integers(0, 3, n), rng.standard_normal(n, np.float32), terminals)


def learned(name: str, *, drift: bool = False, **more: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """Tensors and metrics of the page NAME, or NAME/VARIANT, after some steps, of which the fourth ends an epoch."""
    page, _, variant = name.partition("/")
    settings = {"dtype": "float64", "device": False, "batch_size": BATCH, **VARIANTS.get(variant, {}), **more}
    make = testing.maker(algorithm_class(page), **settings)
    algorithm, data = make(seed=3), images() if variant == "pixels" else testing.data_for(make)
    subject = Stack(algorithm, (3, 5, 8)) if variant == "stack" else algorithm
    metrics: Any = {}
    for epoch in subject.fitter(data, STEPS, 4):
        metrics = epoch.metrics[0] if isinstance(epoch.metrics, list) else epoch.metrics
        if drift:
            next(subject.fit_.learner.modules[next(iter(subject.fit_.learner.modules))].parameters()).data.add_(1e-6)
    return dict(subject.fit_.state()[0]), {k: v for k, v in metrics.items() if not k.startswith("time/")}


def main(rank: int, size: int, folder: Path, *names: str) -> None:
    """Trains each in turn."""
    torch.set_num_threads(1)
    where, patience = f"file://{folder / 'store'}", timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=size, timeout=patience)
    for name in names:
        file = folder / f"{name.replace('/', '-')}-{rank}.pt"
        try:
            torch.save(learned(name, data_parallel=True, drift=name.endswith("/drift") and rank == 1), file)
        except Exception as error:  # the others are tried all the same
            file.with_suffix(".txt").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
