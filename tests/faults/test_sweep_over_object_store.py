"""Sweeps on a dataset in an object store, mapped and streamed: killed they end as the same sweep on a local folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.trials import Trial

from ..platform.object_store import object_store
from .cluster import LocalCluster
from .processes import Command, clean_environment

N_STEPS = 12_000  # of the sweep that loses nodes: long enough for it


def data() -> Dataset:
    rng, ends = np.random.default_rng(0), np.arange(4000) % 20 == 19
    return Dataset.from_arrays(rng.normal(size=(4000, 4)), rng.integers(0, 2, 4000), rng.normal(size=4000), ends, name="tiny")


def sweep(folder: Path, dataset: str, storage: str | None = None, n_steps: int = 400) -> dict[str, str]:
    """Writes the settings of four trials. Gives the environment of its commands."""
    folder.mkdir()
    settings = {
        "name": "swept",
        "dataset": dataset,
        "algorithm": {"name": "DQN", "encoder": {"hidden_units": [16]}, "batch_size": 32},
        "n_steps": n_steps,
        "n_steps_per_epoch": 50,
        "seeds": [0],
        "evaluation": {"holdout": 0.2},
        "objective": "holdout/td_error",
        "search": {
            "algorithm.sampler": {"grid": [{"name": "stream", "memory": 1, "slices": 20}, "uniform"]},
            "algorithm.learning_rate": {"grid": [1e-4, 1e-3]},
        },
        "budget": {"configurations": 4},
        "storage": storage or str(folder / "results"),
    }
    (folder / "sweep.json").write_text(json.dumps(settings))
    return {**clean_environment(), "D3RAY_CACHE": str(folder / "cache")}


def trials(storage: str) -> list[Trial]:
    if (Folder(storage) / "swept").read("experiment.json") is None:
        return []
    return Experiment.look(storage, "swept").trials()


def came_of(storage: str) -> dict[str, Any]:
    """By what was searched over, the metrics that do not depend on the clock, and the bytes of the weights."""
    found: dict[str, Any] = {}
    for trial in trials(storage):
        assert {about["status"] for about in trial.status.values()} == {"FINISHED"}
        metrics = {name: value for name, value in trial.status[0]["metrics"].items() if not name.startswith(("time/", "system/"))}
        asked = trial.configuration["algorithm"]
        weights = (trial.folder / "policy" / "seed-0").read("policy.safetensors")
        assert weights
        found[f"{asked['sampler']} {asked['learning_rate']}"] = metrics, weights
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)  # three commands, each with a Ray of its own
def test_a_sweep_over_an_object_store_is_killed_and_ends_as_the_local_one(tmp_path: Path) -> None:
    begun: list[Command] = []

    def start(folder: Path, env: dict[str, str], *arguments: str) -> Command:
        begun.append(Command(["d3ray.jobs", "sweep", "--config", str(folder / "sweep.json"), *arguments], folder, env))
        return begun[-1]

    with object_store() as store:
        try:
            data().write(store.uri("data"), n_shards=3)
            data().write(tmp_path / "data", n_shards=2)
            away, here = tmp_path / "away", tmp_path / "here"
            env = {**sweep(away, store.uri("data")), **{n: v for n, v in os.environ.items() if n.startswith("AWS_")}}
            first = start(away, env)
            first.until(lambda: sum(trial.committed >= 50 for trial in trials(str(away / "results"))) >= 2)
            first.end()
            left = trials(str(away / "results"))
            assert not all(trial.is_settled for trial in left) or len(left) < 4
            second = start(away, env, "--resume")
            assert second.process.wait(400) == 0, second.log.read_text()
            assert any(ranges for method, _, ranges in store.requests if method == "GET")
            third = start(here, sweep(here, str(tmp_path / "data")))
            assert third.process.wait(400) == 0, third.log.read_text()
        finally:
            for command in begun:
                command.end()
    ours, theirs = came_of(str(away / "results")), came_of(str(here / "results"))
    assert len(ours) == 4
    assert ours == theirs


@pytest.mark.timeout(1200)
def test_with_its_results_there_too_a_sweep_over_nodes_loses_two_and_ends_as_the_local_one(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    begun: list[Command] = []

    def start(folder: Path, env: dict[str, str]) -> Command:
        begun.append(Command(["d3ray.jobs", "sweep", "--config", str(folder / "sweep.json")], folder, env))
        return begun[-1]

    with object_store() as store:
        try:
            data().write(store.uri("of-nodes"), n_shards=3)
            data().write(tmp_path / "data", n_shards=2)
            away, here, storage = tmp_path / "away", tmp_path / "here", store.uri("results-of-nodes")
            keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
            env = {**sweep(away, store.uri("of-nodes"), storage, N_STEPS), **cluster.environment(), **keys}
            first = start(away, {**env, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}"})

            # Each node trains one trial at a time: while two are on their way, two of three nodes train one of them at least.
            first.until(lambda: sum(50 <= trial.committed <= N_STEPS // 2 for trial in trials(storage)) >= 2, 400)
            for node in cluster.nodes[:2]:
                node.kill()
            assert first.wait(600) == 0, first.log.read_text()
            swept = trials(storage)
            assert "2" in {(trial.folder.read("attempt") or b"").decode() for trial in swept}  # one went on elsewhere
            assert any(method == "PUT" and "/results-of-nodes/" in path for method, path, _ in store.requests)
            assert not list(away.glob("**/swept"))  # nothing of it lies here
            second = start(here, sweep(here, str(tmp_path / "data"), n_steps=N_STEPS))
            assert second.wait(600) == 0, second.log.read_text()
            ours, theirs = came_of(storage), came_of(str(here / "results"))
        finally:
            for command in begun:
                command.end()
    assert len(ours) == 4
    assert ours == theirs
