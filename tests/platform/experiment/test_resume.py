"""`d3ray train` killed at every kind of moment goes on bit for bit, and MLflow has every number once."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.spec import Environment
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.outbox import lines
from d3ray.platform.storage.trials import Trial
from d3ray.platform.tracking.runs import Tracking
from d3ray.platform.tracking.settling import settle
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

from ...faults.processes import Command, clean_environment

# A disk that stops at a checkpoint for as long as a file is there, so that a test can kill in the middle of a write.
SLOW_DISK = """
import os, pathlib, time
here, sync = pathlib.Path(__file__).parent, os.fsync

def fsync(descriptor):
    sync(descriptor)
    written = os.readlink(f"/proc/self/fd/{descriptor}")
    for hold in here.glob("hold-*"):
        while f".tmp-step-{hold.name[5:]}" in written and hold.exists():
            time.sleep(0.01)

os.fsync = fsync
"""
N_STEPS, EPOCH = 240, 40
ALGORITHM = {"name": "DQN", "encoder": {"hidden_units": [16]}, "batch_size": 8, "target_update_interval": 50}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    begun: list[Command] = []
    env = {**clean_environment(), "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}

    def begin(*arguments: str) -> Command:
        """`d3ray train` in a session of its own, which holds Ray's processes too."""
        begun.append(Command(["d3ray.jobs", "train", "--config", str(tmp_path / "train.yaml"), *arguments], tmp_path, env))
        return begun[-1]

    yield begin
    for command in begun:
        command.end()


@pytest.mark.long
@pytest.mark.timeout(900)  # four commands, each with a Ray of its own
def test_killed_anywhere_it_goes_on_bit_for_bit(tmp_path: Path, start: Callable[..., Command]) -> None:  # noqa: PLR0915 - a story
    rng = np.random.default_rng(0)
    ends = np.zeros(600, bool)
    ends[19::20] = True
    arrays = rng.normal(size=(600, 4)).astype(np.float32), rng.integers(0, 2, 600), np.ones(600, np.float32), ends
    Dataset.from_arrays(*arrays, environment=Environment(id="CartPole-v1"), name="tiny").write(tmp_path / "tiny")
    (tmp_path / "slow_disk.py").write_text(SLOW_DISK)
    settings = {
        "name": "killed",
        "dataset": str(tmp_path / "tiny"),
        "algorithm": ALGORITHM,
        "n_steps": N_STEPS,
        "n_steps_per_epoch": EPOCH,
        "seeds": [0, 1],
        "evaluation": {"episodes": 2},
        "plugins": ["slow_disk"],
        "storage": str(tmp_path / "results"),
    }
    (tmp_path / "train.yaml").write_text(json.dumps(settings))
    storage = str(tmp_path / "results")

    def trials() -> list[Trial]:
        return Experiment.look(storage, "killed").trials()

    def writing(step: int) -> list[Path]:
        return list((tmp_path / "results/killed/trials").glob(f"*/checkpoints/.tmp-step-{step:09d}*"))

    def statuses() -> set[str]:
        with closing(sqlite3.connect(Path(storage) / "mlflow.db")) as database:  # MLflow's own client keeps connections open
            found = database.execute("SELECT status FROM runs").fetchall()
        assert len(found) == 3
        return {status for (status,) in found}

    def tracking() -> Tracking:
        return Tracking.open(storage)

    # Everything is killed before the first checkpoint stands, while it is being written.
    hold = tmp_path / f"hold-{EPOCH:09d}"
    hold.touch()
    first = start()
    first.until(lambda: len(writing(EPOCH)) == 2)
    first.end()
    hold.unlink()
    assert [trial.committed for trial in trials()] == [-1, -1]
    assert len(writing(EPOCH)) == 2
    assert settle(storage, tracking()) == ["killed"]
    assert statuses() == {"KILLED"}

    # A worker is killed between checkpoints, and its trial goes on without a word. Then Ctrl-C.
    hold = tmp_path / f"hold-{4 * EPOCH:09d}"
    hold.touch()
    second = start("--resume")
    second.until(lambda: len(writing(4 * EPOCH)) == 2)
    attempts = [int(trial.folder.read("attempt") or 0) for trial in trials()]
    assert attempts == [2, 2]
    os.kill(second.members("ray::ResourceTrainable")[0], signal.SIGKILL)
    second.until(lambda: sum(int(trial.folder.read("attempt") or 0) for trial in trials()) == 5)
    second.until(lambda: len([path for path in writing(4 * EPOCH) if path.parents[1].joinpath("attempt").read_text() == "3"]) >= 1)
    os.kill(second.process.pid, signal.SIGINT)
    assert second.process.wait(60) == 130
    assert "To go on: d3ray resume" in second.log.read_text()
    assert statuses() == {"KILLED"}
    second.end()
    hold.unlink()
    assert [trial.committed for trial in trials()] == [3 * EPOCH, 3 * EPOCH]

    # The driver alone is killed, while checkpoints are written; its workers end by themselves.
    hold = tmp_path / f"hold-{5 * EPOCH:09d}"
    hold.touch()
    third = start("--resume")
    third.until(lambda: len(writing(5 * EPOCH)) >= 2)
    os.kill(third.process.pid, signal.SIGKILL)
    third.process.wait()
    deadline = time.monotonic() + 60
    while third.members("ray::ResourceTrainable"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    third.end()
    hold.unlink()

    last = start("--resume")
    assert last.process.wait(200) == 0, last.log.read_text()
    assert statuses() == {"FINISHED"}

    for trial in trials():
        (seed,) = trial.seeds
        told = {"dataset": settings["dataset"], "algorithm": ALGORITHM, "n_steps": N_STEPS, "n_steps_per_epoch": EPOCH}
        alone = Trial.create(Folder(tmp_path / f"alone-{seed}"), {}, (seed,), trial.dataset)
        run = TrialRun(
            TrialConfig.checked(
                {**told, "seeds": (seed,), "evaluation": {"episodes": 2}, "device": "cpu", "folder": alone.folder.name}
            )
        )
        while not run.done:
            run.epoch()
        last_one = f"checkpoints/step-{N_STEPS:09d}/tensors.safetensors"
        assert trial.folder.local is not None
        assert (trial.folder.local / last_one).read_bytes() == (tmp_path / f"alone-{seed}" / last_one).read_bytes()
        expected = list(lines(alone.outbox(seed), -1, N_STEPS))
        assert [line.step for line in expected] == [EPOCH * k for k in range(1, 7)]
        run_id = trial.delivered[seed]["run"]
        for name in expected[-1].metrics:
            history = tracking().client.get_metric_history(run_id, name)
            assert [m.step for m in history] == [line.step for line in expected], name
            if not name.startswith("time/"):
                assert [m.value for m in history] == [line.metrics[name] for line in expected], name
    (version,) = {tuple(sorted(v.tags["d3ray.seed"] for v in tracking().client.search_model_versions("name = 'killed'")))}
    assert version == ("0", "1")
