"""Experiments as trials leave them, written through the real folders, without the training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from d3ray.platform.storage import outbox
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import Outbox
from d3ray.platform.storage.trials import Status
from d3ray.platform.surroundings import FILE

BEGUN = 1_790_000_000  # 2026-09-21 14:13:20 UTC
MACHINE = {
    "since": BEGUN,
    "host": "node",
    "system": "Linux x86_64",
    "processor": "A Processor",
    "cpus": 2,
    "gpus": [],
    "versions": {"d3ray": "0.1.0", "torch": "2.13.0"},
}
DATASET: dict[str, Any] = {
    "name": "hopper-medium-v2",
    "fingerprint": "ab12cd34" * 8,
    "source": "/data/hopper",
    "n_transitions": 1200,
    "n_episodes": 4,
    "environment": "Hopper-v4",
    "schema": {},
    "return_mean": 60.0,
    "return_std": 5.0,
}
Curves = Mapping[int, Sequence[float | None]]  # by seed; None: not evaluated at that step


def write_experiment(
    monkeypatch: pytest.MonkeyPatch,
    storage: Path,
    name: str,
    returns: Mapping[float, Curves] | Curves,
    *,
    algorithm: str = "TD3PlusBC",
    status: Mapping[int, tuple[str, str]] | None = None,
    overall: Status = "FINISHED",
    n_points: int = 4,
    metric: str = "evaluation/return",
    dataset: Mapping[str, Any] | None = None,
    environment: str | None = "Hopper-v4",
    losses: Sequence[str] = ("critic_loss",),
    also: Mapping[str, Sequence[float]] | None = None,
    uri: str = "",
) -> Experiment:
    """An experiment with evaluations at steps 100, 200, …, of `returns` by seed, or by `alpha` and seed.

    `status` has seeds that did not finish, with why: ("FAILED", "diverged"), ("KILLED", ""); those have no status in their folder.
    `overall` is the experiment's own, `metric` what `returns` are, `also` further metrics with one value a seed, `losses` their
    names below `train/`. With a `uri` of MLflow it was delivered.
    """
    by_alpha = returns if isinstance(next(iter(returns.values())), Mapping) else {2.5: returns}
    clock = [BEGUN * 10**9]
    monkeypatch.setattr(outbox.time, "time_ns", lambda: clock[0])
    monkeypatch.setattr("d3ray.platform.storage.experiments.time.time", lambda: float(BEGUN))
    evaluation = (
        {"environment": environment, "episodes": 10, "every": None, "n_envs": None, "holdout": 0.0} if environment else None
    )

    def configuration(alpha: float) -> dict[str, Any]:
        settings = {"name": algorithm, "alpha": alpha, "dtype": "float32"}
        return {"algorithm": settings, "n_steps": 100 * n_points, "n_steps_per_epoch": 100, "evaluation": evaluation, "best": None}

    experiment = Experiment.begin(str(storage), name, configuration(2.5), dataset or DATASET)
    for alpha, curves in by_alpha.items():
        for seed, values in curves.items():  # type: ignore[union-attr]
            trial = experiment.trial(configuration(alpha), (seed,))
            box = Outbox(trial.outbox(seed))
            box.begin(-1)
            for k, value in enumerate(values, 1):
                clock[0] += 10**10
                metrics = {f"train/{loss}": 10.0 / k + seed for loss in losses} | {"time/updates_per_second": 100.0 + k}
                metrics |= {name: by_seed[seed] for name, by_seed in (also or {}).items()}
                if value is not None:
                    metrics[metric] = value
                    if metric == "evaluation/return" and environment == "Hopper-v4":
                        metrics["evaluation/normalized_return"] = 100 * (value + 20.272305) / (3234.3 + 20.272305)
                box.add(100 * k, metrics)
            step = 100 * len(values)
            box.write(step)
            (trial.folder / "checkpoints").local.joinpath(f"step-{step:09d}").mkdir(parents=True)  # type: ignore[union-attr]
            ended, reason = (status or {}).get(seed, ("FINISHED", ""))
            if ended == "FAILED":
                trial.settle({seed: {"status": ended, "reason": reason, "first_bad_step": step - 3, "final": True, "step": step}})
            elif ended == "FINISHED":
                last = {metric: values[-1]} if values[-1] is not None and math.isfinite(values[-1]) else {}
                trial.settle({seed: {"status": ended, "step": step, "metrics": last}})
            if uri:
                trial.note_delivered({seed: {"run": f"{seed:032x}", "uri": uri, "step": step, "status": ended}})
    experiment.folder.write_json(FILE, [MACHINE])
    if uri:
        experiment.folder.write_json("tracking.json", {"run": "f" * 32, "uri": uri, "experiment_id": "7", "status": overall})
    experiment.set_state(overall, "a reason" if overall == "FAILED" else "")
    experiment.close()
    return experiment
