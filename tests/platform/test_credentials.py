"""Credentials in the addresses of data and of the tracking server: real commands use them, and leave them nowhere.

The data lie behind a file system that asks for a key and a secret, as an object store does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.platform.storage.experiments import Experiment

from .leaks import files_with
from .tracking.test_tracking import server, storage, tracking

__all__ = ["server", "storage", "tracking"]  # fixtures

VAULT = """
from fsspec.implementations.local import LocalFileSystem


class Vault(LocalFileSystem):
    protocol = "vault"

    def __init__(self, key="", secret="", **options):
        super().__init__(**options)
        if secret not in ("planted-secret", "rotated-secret"):
            raise PermissionError("the vault is closed")

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.partition("://")[2].partition("/")[2] if "://" in path else path

    @staticmethod
    def _get_kwargs_from_urls(path):
        user = path.partition("://")[2].partition("@")[0]
        key, _, secret = user.partition(":")
        return {"key": key, "secret": secret}
"""
PLANTED = ("planted-key", "planted-secret", "rotated-key", "rotated-secret", "planted-password")


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """A folder with the file system, as an installed package of fsspec's brings it."""
    about = tmp_path / "packages" / "vault-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vault\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[fsspec.specs]\nvault = vault:Vault\n")
    (about.parent / "vault.py").write_text(VAULT)
    return about.parent


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_commands_use_credentials_and_leave_them_nowhere(vault: Path, server: int, tmp_path: Path) -> None:
    """A sweep, and its resume with other credentials: both train, so both had them."""
    rng, ends = np.random.default_rng(0), np.zeros(200, bool)
    ends[19::20] = True
    arrays = rng.normal(size=(200, 4)).astype(np.float32), rng.integers(0, 2, 200), np.ones(200, np.float32), ends
    Dataset.from_arrays(*arrays, name="tiny").write(tmp_path / "tiny")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
        "PYTHONPATH": os.pathsep.join([str(vault), os.environ.get("PYTHONPATH", "")]),
        "MLFLOW_TRACKING_URI": f"http://planted-key:planted-password@127.0.0.1:{server}",
    }
    options = [
        *("algorithm={name: DQN, batch_size: 8, encoder: {hidden_units: [8]}}", "n_steps=20", "n_steps_per_epoch=10"),
        *(
            "evaluation={holdout: 0.2}",
            "name=planted",
            f"storage={tmp_path / 'results'}",
            "searcher=grid",
            "objective.metric=holdout/td_error",
        ),
    ]

    def sweep(user: str, *more: str) -> str:
        place = f"fsspec+vault://{user}@host{tmp_path / 'tiny'}"
        search = f"search={{algorithm.learning_rate: {{grid: [0.01, 0.001]}}, dataset: {{grid: ['{place}']}}}}"
        done = subprocess.run(
            [sys.executable, "-m", "d3ray.jobs", "sweep", place, search, *options, *more],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    said = sweep("planted-key:planted-secret", "budget.configurations=1")
    said += sweep("rotated-key:rotated-secret", "budget.configurations=2", "--resume")
    experiment = Experiment.look(str(tmp_path / "results"), "planted")
    trials = experiment.trials()
    assert [trial.number for trial in trials] == [0, 1]
    assert {about["status"] for trial in trials for about in trial.status.values()} == {"FINISHED"}
    kept = f"fsspec+vault://host{tmp_path / 'tiny'}"
    assert {trial.dataset["source"] for trial in trials} == {kept}
    assert {trial.folder.read_json("choice.json")["dataset"] for trial in trials} == {kept}
    for planted in PLANTED:
        assert files_with(planted, tmp_path / "results", tmp_path / "server") == []
        assert planted not in said
