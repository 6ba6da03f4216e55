"""Benchmarks as a delivery leaves them in MLflow, written through the real connection, without the training."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from d3ray.algos.environments.scores import reference_score
from d3ray.platform.benchmark.reading import read_benchmark
from d3ray.platform.benchmark.results import Benchmark
from d3ray.platform.storage.outbox import Line
from d3ray.platform.tracking.runs import Tracking

EVERY = 500
VERSIONS = "d3ray 0.1.0, torch 2.13.0"
MACHINE = "A Processor, 2 CPUs, no GPU, Linux x86_64"
HOPPER, WALKER, PENDULUM = "d3ray-mujoco/hopper-medium-v4", "d3ray-mujoco/walker2d-medium-v4", "d3ray/pendulum-replay"
CUBE, MAZE = "d3ray-ogbench/cube-single-play-singletask-100k-v0", "d3ray-ogbench/pointmaze-medium-navigate-singletask-100k-v0"
ENVIRONMENTS = {HOPPER: "Hopper-v4", WALKER: "Walker2d-v4", PENDULUM: "Pendulum-v1"}
ENVIRONMENTS |= {CUBE: "cube-single-singletask-v0", MAZE: "pointmaze-medium-singletask-v0"}
Runs = Mapping[int, Sequence[float]]  # returns of a seed's evaluations, normalised where D4RL has a reference; in OGBench % solved
_counter = itertools.count()


def write_benchmark(
    tracking: Tracking,
    cells: Mapping[tuple[str, str], Runs],
    *,
    suite: str = "tiny",
    name: str | None = None,
    storage: Path | None = None,
    definition: Mapping[str, Any] | None = None,
    missing: Mapping[str, str] | None = None,
    status: str = "FINISHED",
    ended: Mapping[tuple[str, str, int], tuple[str, str]] | None = None,
    n_evaluations: int = 4,
    episodes: int = 10,
    algorithms: Mapping[str, str] | None = None,
    params: Mapping[str, Mapping[str, str]] | None = None,
    fingerprints: Mapping[tuple[str, str], str] | None = None,
    machines: Mapping[int, str] | None = None,
    more_tags: Mapping[int, Mapping[str, str]] | None = None,
    data_returns: Mapping[str, float] | None = None,
    parent: str | None = None,
) -> str:
    """A benchmark with evaluations at steps 500, 1000, …; the id of its parent run, which may be an earlier one's that goes on.

    `cells` are runs by (dataset, label), as are `fingerprints`; `ended` has status and reason of seeds that did not finish;
    `algorithms` and further `params` are by label, `machines` and `more_tags` by seed, `data_returns` by dataset: MLflow keeps what
    it first heard of a fingerprint. `definition` stands in place of what follows from the cells.
    """
    name, n_steps = name or suite, EVERY * n_evaluations
    seeds = sorted({seed for runs in cells.values() for seed in runs})
    known = definition or {
        "datasets": list(dict.fromkeys(dataset for dataset, _ in cells)),
        "algorithms": [{"label": label, "name": label} for label in dict.fromkeys(label for _, label in cells)],
        "seeds": seeds,
        "n_steps": n_steps,
    }
    folder = f"{storage}/{name}"
    common = {"d3ray.experiment": name, "d3ray.folder": folder, "d3ray.suite": suite}
    code = {"d3ray.versions": VERSIONS, "mlflow.source.git.commit": "0123456789abcdef"}
    if parent is None:
        tags = {
            **common,
            **code,
            "d3ray.kind": "experiment",
            "d3ray.suite_definition": json.dumps(known),
            "d3ray.missing": json.dumps(missing or {}),
        }
        parent = tracking.run(f"key-{next(_counter)}", name, tags, {}, _data(HOPPER, ""))
    for (dataset, label), runs in cells.items():
        algorithm = (algorithms or {}).get(label, label)
        for seed, scores in runs.items():
            fingerprint = (fingerprints or {}).get((dataset, label), "ab12cd34" * 8)
            tags = {
                **common,
                **code,
                "mlflow.parentRunId": parent,
                "d3ray.kind": "seed",
                "d3ray.cell": label,
                "d3ray.algorithm": algorithm,
                "d3ray.dataset": dataset,
                "d3ray.fingerprint": fingerprint,
                "d3ray.seed": str(seed),
                "d3ray.machine": (machines or {}).get(seed, MACHINE),
                **(more_tags or {}).get(seed, {}),
            }
            settings = {
                "seed": str(seed),
                "dataset": dataset,
                "n_steps": str(n_steps),
                "n_steps_per_epoch": str(EVERY),
                "algorithm": algorithm,
                "evaluation.environment": ENVIRONMENTS.get(dataset, "null"),
                "evaluation.episodes": str(episodes),
                "evaluation.every": "null",
                **(params or {}).get(label, {}),
            }
            data = {**_data(dataset, fingerprint), "return_mean": (data_returns or {}).get(dataset)}
            run = tracking.run(f"key-{next(_counter)}", f"{name} {label} seed {seed}", tags, settings, data)
            tracking.send(run, [Line(EVERY * k, 1000 + k, _metrics(dataset, score)) for k, score in enumerate(scores, 1)])
            tracking.set_status(run, *(ended or {}).get((dataset, label, seed), ("FINISHED", "")))
    tracking.set_status(parent, status)
    return parent


def _metrics(dataset: str, score: float) -> dict[str, float]:
    reference = reference_score(ENVIRONMENTS.get(dataset, dataset)) or reference_score(dataset)
    if dataset in (CUBE, MAZE):
        return {"evaluation/return": score - 200, "evaluation/success": score / 100}
    if reference is None:
        return {"evaluation/return": score}
    returned = reference.min + score * (reference.max - reference.min) / 100
    return {"evaluation/return": returned, "evaluation/normalized_return": score}


def _data(dataset: str, fingerprint: str) -> dict[str, Any]:
    return {
        "name": dataset,
        "fingerprint": fingerprint,
        "source": "/data",
        "n_transitions": 1200,
        "n_episodes": 4,
        "environment": ENVIRONMENTS.get(dataset),
        "schema": {},
    }


def read(tracking: Tracking, cells: Mapping[tuple[str, str], Runs], **options: Any) -> Benchmark:
    """A benchmark written, and read again."""
    return read_benchmark(tracking, tracking.client.get_run(write_benchmark(tracking, cells, **options)))
