"""The script for Slurm, with real processes in place of its nodes: a Ray of three nodes, of which one dies, and time that ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from d3ray.platform.cluster.description import Description
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.trials import Trial

from ..platform.object_store import KEYS, ObjectStore, object_store
from .processes import clean_environment, kill, marked, until

STAND_IN = Path(__file__).with_name("slurm_stand_in.py")
NODE = "SLURMD_NODENAME"
SECONDS = 500
SETTINGS = {
    "name": "swept",
    "algorithm": {"name": "DQN", "encoder": {"hidden_units": [16]}, "batch_size": 32},
    "n_steps_per_epoch": 100,
    "seeds": [0],
    "evaluation": {"holdout": 0.2},
}


class Slurm:
    """Its commands, in a folder with the script."""

    def __init__(self, folder: Path, store: ObjectStore) -> None:
        self.folder, self.storage = folder, store.uri(folder.name)  # tests of a process share one bucket
        (folder / "slurm/dead").mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "home").mkdir()
        for name in ("sbatch", "srun", "scontrol", "scancel"):
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} -S {STAND_IN} {name} "$@"\n')
            (folder / "bin" / name).chmod(0o755)
        self.environment = {
            **clean_environment(),
            "HOME": str(folder / "home"),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "SLURM_STAND_IN": str(folder / "slurm"),
            "SPT_NOENV": "1",  # or a worker's title is written over its environment, by which its node is found
        }
        setup = (f"export PATH={sysconfig.get_path('scripts')}:$PATH",)
        tracking = f"sqlite:///{folder / 'mlflow.db'}"
        nodes = {"workers": 3, "cpus": 2, "gpus": 0, "memory_gib": 1}
        about = Description.checked({**nodes, "tracking": tracking, "slurm": {"setup": setup}})
        (folder / "slurm.sh").write_text(about.files_for("slurm")["slurm.sh"])

    def run(self, *command: str, folder: str = ".") -> str:
        done = subprocess.run(command, cwd=self.folder / folder, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, *arguments: str) -> str:
        """The number of the job."""
        found = re.fullmatch(r"Submitted batch job (\d+)\n", self.run("sbatch", *arguments))
        assert found
        return found[1]

    def said(self, job: str) -> str:
        log = self.folder / f"d3ray-{job}.log"
        return log.read_text() if log.exists() else ""

    def status(self, job: str) -> str:
        """What it ended with; empty while it runs."""
        file = self.folder / "slurm" / f"job-{job}" / "status"
        return file.read_text() if file.exists() else ""

    def until(self, job: str, condition: Callable[[], bool]) -> None:
        """Waits until a condition is true of a job that runs."""

        def checked() -> bool:
            found = condition()
            assert found or not self.status(job), self.said(job)
            return found

        until(checked, lambda: self.said(job), SECONDS)

    def processes(self, node: str = "") -> list[int]:
        if node:
            return [one for one in marked(NODE, node) if one in self.processes()]
        return marked("SLURM_STAND_IN", str(self.folder / "slurm"))

    def kill_node(self, node: str) -> None:
        """As if its plug were pulled."""
        (self.folder / "slurm/dead" / node).touch()
        while left := self.processes(node):
            kill(*left)

    def trials(self) -> list[Trial]:
        there = (Folder(self.storage) / "swept").read("experiment.json")
        return [] if there is None else Experiment.look(self.storage, "swept").trials()

    def training(self, node: str) -> bool:
        """Whether a trial runs there."""
        return bool({*marked(NODE, node, "Trainable")} & {*self.processes()})


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    with object_store() as store:
        made = Slurm(tmp_path, store)
        try:
            yield made
        finally:
            while left := made.processes():
                kill(*left)


def settings(slurm: Slurm, **more: object) -> str:
    """A config file."""
    file = slurm.folder / "config.json"
    file.write_text(json.dumps({**SETTINGS, "dataset": "d3ray/cartpole-replay", "storage": slurm.storage, **more}))
    return str(file)


def test_a_sweep_on_three_nodes_loses_one(slurm: Slurm) -> None:
    grid = {"algorithm.learning_rate": {"grid": [1e-4, 1e-3]}, "algorithm.gamma": {"grid": [0.9, 0.99]}}
    config = settings(slurm, search=grid, objective="holdout/td_error", budget={"configurations": 4}, n_steps=6000)
    job = slurm.submit("slurm.sh", "sweep", "--config", config)
    slurm.until(job, lambda: slurm.training("node2") and any(trial.committed for trial in slurm.trials()))
    slurm.kill_node("node2")
    until(lambda: slurm.status(job), lambda: slurm.said(job), SECONDS)
    assert slurm.status(job) == "0", slurm.said(job)
    assert [trial.committed for trial in slurm.trials()] == [6000] * 4
    assert {about["status"] for trial in slurm.trials() for about in trial.status.values()} == {"FINISHED"}
    until(lambda: not slurm.processes(), lambda: str(slurm.processes()))


def test_a_training_without_time_left_is_queued_again_and_goes_on(slurm: Slurm) -> None:
    job = slurm.submit("--nodes=1", "slurm.sh", "train", "--config", settings(slurm, n_steps=6000))
    slurm.until(job, lambda: any(trial.committed for trial in slurm.trials()))
    slurm.run("scancel", "--signal=USR1", "--batch", job)  # as Slurm does two minutes before the end
    until(lambda: slurm.status(job), lambda: slurm.said(job), SECONDS)
    assert slurm.status(job) == "0", slurm.said(job)
    first, again, second = slurm.said(job).partition(f"There was no time left: job {job} is queued again.")
    assert again
    assert "d3ray 0." in first
    assert "d3ray 0." in second
    (trial,) = slurm.trials()
    assert trial.committed == 6000
    until(lambda: not slurm.processes(), lambda: str(slurm.processes()))


def test_a_cluster_that_stays_takes_jobs_until_it_is_cancelled(slurm: Slurm) -> None:
    job = slurm.submit("--nodes=1", "slurm.sh")
    slurm.until(job, lambda: "d3ray submit train" in slurm.said(job))
    assert (slurm.folder / "home/.ray/auth_token").stat().st_mode & 0o777 == 0o600
    tunnel = re.search(r"ssh -fN .* -L \d+:(127\.0\.0\.1:\d+) node1", slurm.said(job))
    assert tunnel
    (slurm.folder / "fresh").mkdir()
    address, submit = f"address=http://{tunnel[1]}", [sys.executable, "-m", "d3ray.jobs", "submit"]
    slurm.environment |= {"RAY_AUTH_MODE": "token"} | {name: os.environ[name] for name in KEYS}
    slurm.run(*submit, address, "train", "--config", settings(slurm, n_steps=200), folder="fresh")
    (trial,) = slurm.trials()
    assert trial.committed == 200
    slurm.run("scancel", job)
    until(lambda: slurm.status(job), lambda: slurm.said(job), SECONDS)
    assert slurm.status(job) == "0", slurm.said(job)
    until(lambda: not slurm.processes(), lambda: str(slurm.processes()))
