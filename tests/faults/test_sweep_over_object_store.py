"""A sweep on a dataset in an object store, mapped and streamed: killed and resumed it ends as the same sweep on a local folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.platform.storage.experiments import Experiment, Trial

from ..platform.object_store import object_store
from .processes import Command, clean_environment


def data() -> Dataset:
    rng, ends = np.random.default_rng(0), np.arange(4000) % 20 == 19
    return Dataset.from_arrays(rng.normal(size=(4000, 4)), rng.integers(0, 2, 4000), rng.normal(size=4000), ends, name="tiny")


def sweep(folder: Path, dataset: str) -> dict[str, str]:
    """Writes the settings of four trials. Gives the environment of its commands."""
    folder.mkdir()
    settings = {
        "name": "swept",
        "dataset": dataset,
        "algorithm": {"name": "DQN", "encoder": {"hidden_units": [16]}, "batch_size": 32},
        "n_steps": 400,
        "n_steps_per_epoch": 50,
        "seeds": [0],
        "evaluation": {"holdout": 0.2},
        "objective": "holdout/td_error",
        "search": {
            "algorithm.sampler": {"grid": [{"name": "stream", "memory": 1, "slices": 20}, "uniform"]},
            "algorithm.learning_rate": {"grid": [1e-4, 1e-3]},
        },
        "budget": {"configurations": 4},
        "storage": str(folder / "results"),
    }
    (folder / "sweep.json").write_text(json.dumps(settings))
    return {**clean_environment(), "D3RAY_CACHE": str(folder / "cache")}


def trials(folder: Path) -> list[Trial]:
    if not (folder / "results/swept/experiment.json").exists():
        return []
    return Experiment.look(str(folder / "results"), "swept").trials()


def came_of(folder: Path) -> dict[str, Any]:
    """By what was searched over, the metrics that do not depend on the clock, and the bytes of the weights."""
    found: dict[str, Any] = {}
    for trial in trials(folder):
        assert {about["status"] for about in trial.status.values()} == {"FINISHED"}
        metrics = {name: value for name, value in trial.status[0]["metrics"].items() if not name.startswith(("time/", "system/"))}
        asked = trial.configuration["algorithm"]
        weights = (folder / "results/swept/trials" / trial.identity / "policy/seed-0/policy.safetensors").read_bytes()
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
            first.until(lambda: sum(trial.committed >= 50 for trial in trials(away)) >= 2)
            first.end()
            assert not all(trial.is_settled for trial in trials(away)) or len(trials(away)) < 4
            second = start(away, env, "--resume")
            assert second.process.wait(400) == 0, second.log.read_text()
            assert any(ranges for method, _, ranges in store.requests if method == "GET")
            third = start(here, sweep(here, str(tmp_path / "data")))
            assert third.process.wait(400) == 0, third.log.read_text()
        finally:
            for command in begun:
                command.end()
    ours, theirs = came_of(away), came_of(here)
    assert len(ours) == 4
    assert ours == theirs
