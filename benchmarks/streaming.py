"""The streaming table: a stream beside the mapped sampler, how far it is from uniform, and both inside Tune.

    python benchmarks/streaming.py [--repeat 10] [--steps 1000000] [--only draws …]

The sides of a row are measured in turn, A B A B …, in one process with one thread; a ratio is taken pair by pair by processor time
(by wall clock inside Tune), and the table gives the median of the pairs and a lower bound of it: the lowest of 95 % of resamplings.
Results go to `benchmarks/results/streaming.json` and `streaming.md`; a run of some tables replaces those alone.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tasks import hopper_like
from workers import keep, kept, table

from d3ray import TD3PlusBC
from d3ray.data.dataset import Dataset
from d3ray.data.sampling import EpochSampler, StreamSampler, TransitionSampler

BATCH = 256
SIZES = {
    "1024 MB, 256 slices": (1024, 256),
    "32 MB, 256 slices": (32, 256),
    "16 MB, 128 slices": (16, 128),
    "16 MB, 8 slices": (16, 8),
}


def pairs(a: Callable[[], float], b: Callable[[], float], repeat: int) -> dict[str, float]:
    """Rates of two sides that take turns, and their ratio."""
    found = np.asarray([(a(), b()) for _ in range(repeat)])
    ratio, rng = found[:, 0] / found[:, 1], np.random.default_rng(0)
    medians = np.median(rng.choice(ratio, (2000, len(ratio))), 1)
    rates = np.median(found, 0)
    return {"a": rates[0], "b": rates[1], "ratio": float(np.median(ratio)), "lower": float(np.quantile(medians, 0.05))}


def drawing(sampler: Any, n: int) -> Callable[[], float]:
    """Batches a second of processor time, all threads of the process counted, over the next `n` steps."""
    at = [0]
    sampler.sample(0)

    def run() -> float:
        begin = time.process_time()
        for _ in range(n):
            sampler.sample(at[0])
            at[0] += 1
        return n / (time.process_time() - begin)

    return run


def draws(folder: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Batches of 256 from a stream and from a map."""
    data = Dataset.open(folder)
    mapped = drawing(TransitionSampler(data, BATCH, 0), 1500)
    sides = {"epoch": EpochSampler(data, BATCH, 0)}
    sides |= {f"stream, {name}": StreamSampler(data, BATCH, 0, memory=m, slices=k) for name, (m, k) in SIZES.items()}
    return [{"row": name, **pairs(drawing(side, 1500), mapped, options.repeat)} for name, side in sides.items()]


def updates(folder: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Updates of TD3+BC, networks of 256 × 256."""

    def training(**settings: Any) -> Callable[[], float]:
        n = 60
        epochs = TD3PlusBC(batch_size=BATCH, action_scaler="min_max", device="cpu", **settings).fitter(
            Dataset.open(folder), 10**6, n
        )
        next(epochs)

        def run() -> float:
            begin = time.process_time()
            next(epochs)
            return n / (time.process_time() - begin)

        return run

    memory, slices = SIZES["16 MB, 128 slices"]
    stream = training(sampler={"name": "stream", "memory": memory, "slices": slices})
    return [{"row": "TD3+BC, stream of 16 MB, 128 slices", **pairs(stream, training(), options.repeat)}]


def uniformity(folder: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """How a batch differs from a uniform draw of as many: the variance of its mean row over that of one, and its episodes."""
    del options
    data = Dataset.open(folder)
    ends, n = np.cumsum(data.episodes.steps), data.n_transitions
    sides: dict[str, Any] = {"mapped": TransitionSampler(data, BATCH, 0)}
    sides |= {f"stream, {name}": StreamSampler(data, BATCH, 0, memory=m, slices=k) for name, (m, k) in SIZES.items()}
    rows: list[dict[str, Any]] = []
    for name, sampler in sides.items():
        index = np.stack([sampler.sample(step).index.numpy() for step in range(3 * n // BATCH)])
        variance = index.mean(1).var() / ((n * n - 1) / 12 / BATCH)
        episodes = np.mean([len(np.unique(np.searchsorted(ends, batch, side="right"))) for batch in index[::50]])
        rows.append({"row": name, "variance": float(variance), "episodes": float(episodes)})
    return rows


def in_tune(folder: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Two trials that hold every CPU of Ray, mapped and streaming, side by side: the mean of their updates by wall clock."""
    from ray import tune

    from d3ray.platform.cluster.session import ray_session
    from d3ray.platform.trainable import trainable

    def trained(sampler: Any) -> float:
        with tempfile.TemporaryDirectory() as storage:
            results = tune.Tuner(
                tune.with_resources(trainable("TD3PlusBC"), {"cpu": 1}),
                param_space={
                    "dataset": folder, "n_steps": 600, "n_steps_per_epoch": 150, "evaluation": None,
                    "seed": tune.grid_search([0, 1]),
                    "algorithm": {"batch_size": BATCH, "action_scaler": "min_max", "sampler": sampler},
                },
                run_config=tune.RunConfig(storage_path=storage, verbose=0),
            ).fit()  # fmt: skip
        if results.num_errors:
            raise RuntimeError(str(results.errors))
        return float(np.mean([result.metrics["time/updates_per_second"] for result in results]))

    with ray_session(num_cpus=2):
        found = pairs(
            lambda: trained({"name": "stream", "memory": 16, "slices": 128}), lambda: trained(None), min(3, options.repeat)
        )
    return [{"row": "TD3+BC, two trials on two CPUs, stream of 16 MB", **found}]


TABLES = {"draws": draws, "updates": updates, "uniformity": uniformity, "in_tune": in_tune}


def markdown(report: dict[str, Any]) -> str:
    """The tables as a page."""
    parts = [
        f"# Streaming\n\n{report['steps']:,} steps like Hopper's, batch {BATCH}, one thread; `python benchmarks/streaming.py`."
    ]
    for name in TABLES:
        if rows := report["tables"].get(name, []):
            header = ["side", "a second", "beside", "ratio", "lower bound"]
            if "a" in rows[0]:
                numbers = [[f"{r['a']:,.0f}", f"{r['b']:,.0f}", f"{r['ratio']:.2f}", f"{r['lower']:.2f}"] for r in rows]
                lines = [[r["row"], *found] for r, found in zip(rows, numbers, strict=True)]
            else:
                header = ["side", "variance of a batch's mean over uniform's", "episodes in a batch"]
                lines = [[r["row"], f"{r['variance']:.2f}", f"{r['episodes']:.0f}"] for r in rows]
            parts.append(f"## {name}\n\n" + table(header, lines))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measures, and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", choices=list(TABLES), default=list(TABLES))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    report: dict[str, Any] = kept("streaming", {"tables": {}})
    with tempfile.TemporaryDirectory() as folder:
        os.environ["D3RAY_CACHE"] = f"{folder}/cache"
        hopper_like(options.steps).write(f"{folder}/data", n_shards=4)
        report["steps"] = options.steps
        for name in options.only:
            if rows := TABLES[name](f"{folder}/data", options):
                report["tables"][name] = rows
                print(name, json.dumps(rows, indent=1), flush=True)
                keep("streaming", report, markdown(report))


if __name__ == "__main__":
    main()
