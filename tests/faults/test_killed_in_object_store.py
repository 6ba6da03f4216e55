"""A command whose experiment lies in an object store is killed, and resumed at once: the same machine need not outwait its lock."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from d3ray.platform.storage.experiments import Experiment

from ..platform.object_store import object_store
from .processes import Command, clean_environment


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_command_is_resumed_at_once(tmp_path: Path) -> None:
    with object_store() as store:
        storage = store.uri("killed")
        env = {**clean_environment(), **{n: v for n, v in os.environ.items() if n.startswith("AWS_")}}
        env |= {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}", "D3RAY_CACHE": str(tmp_path / "cache")}
        train = ["d3ray.jobs", "train", "d3ray/cartpole-replay", "algorithm=DiscreteBC", "algorithm.encoder={hidden_units: [16]}"]
        train += ["n_steps=6000", "n_steps_per_epoch=300", "seeds=[0, 1]", "name=first", f"storage={storage}"]

        def steps() -> list[int]:
            return [trial.committed for trial in Experiment.look(storage, "first").trials()]

        first = Command(train, tmp_path, env)
        try:
            first.until(lambda: "first" in store_names(storage) and min(steps(), default=-1) >= 600)
            first.end()
            assert max(steps()) < 6000
            taken = len(store.requests)
            begun = time.monotonic()
            second = Command([*train, "--resume"], tmp_path, env)
            try:
                second.until(lambda: any(m == "PUT" and path.endswith("/first/lock") for m, path, _ in store.requests[taken:]))
                assert time.monotonic() - begun < 50  # a start, and no minute of waiting
                assert second.process.wait(400) == 0, second.log.read_text()
            finally:
                second.end()
        finally:
            first.end()
        experiment = Experiment.look(storage, "first")
        assert experiment.state["status"] == "FINISHED"
        for trial in experiment.trials():
            (seed,) = trial.seeds
            assert trial.status[seed]["status"] == "FINISHED"
            assert trial.committed == trial.delivered[seed]["step"] == 6000


def store_names(storage: str) -> list[str]:
    from d3ray.platform.storage.folders import Folder

    return [name for name in Folder(storage).names() if (Folder(storage) / name).read("experiment.json") is not None]
