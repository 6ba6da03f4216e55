"""Credentials in the environment and in addresses: trials use them, and no file of Ray, of Tune or of the results holds them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.errors import StorageError
from d3ray.platform.driver.proposer import Listed
from d3ray.platform.driver.trials import run_trials
from d3ray.platform.driver.work import Work
from d3ray.platform.experiment.checks import describe_dataset
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder

from ..leaks import files_below
from ..object_store import object_store

PLANTED = ("planted-key", "planted-secret", "planted-of-the-shell")
SHELL = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), PLANTED[2])


def test_trials_over_an_object_store_leave_no_credentials(local_ray: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not while they run, when Tune keeps notes."""
    from ray import _private as ray_private

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where Tune keeps them
    ends = np.arange(100) % 10 == 9
    dataset = Dataset.from_arrays(
        np.ones((100, 2), np.float32), np.zeros(100, np.int64), np.ones(100, np.float32), ends, name="tiny"
    )
    with object_store() as store, monkeypatch.context() as shell:
        for name, value in SHELL.items():
            shell.setenv(name, value)

        def place(path: str) -> str:
            return store.uri(path).replace("s3://", f"s3://{PLANTED[0]}:{PLANTED[1]}@")

        dataset.write(place("tiny"))
        config = ExperimentConfig.checked(
            {
                "dataset": place("tiny"),
                "algorithm": {"name": "DiscreteBC", "batch_size": 8, "encoder": {"hidden_units": [8]}},
                "name": "planted",
                "storage": place("results"),
                "n_steps": 2,
                "n_steps_per_epoch": 1,
                "evaluation": None,
            }
        )
        decided, about = config.configuration(), describe_dataset(dataset, config.dataset_place)
        work = Work(config, decided, {place("tiny"): about}, lambda *_: Listed([]))
        experiment = Experiment.begin(config.storage_place, "planted", decided, about)
        trial, files = experiment.trial(decided, (0,)), list[tuple[Path, bytes]]()
        run_trials(experiment, Listed([trial]), work, on_progress=lambda _: files.extend(files_below(tmp_path)))
        assert trial.status[0]["status"] == "FINISHED", trial.status
        files += files_below(Path(ray_private.worker.global_worker.node.get_session_dir_path()))
        results: Any = Folder(store.uri("results"))
        files += [(Path(name), results.read(name)) for name in results.tree()]
    names = {file.name.partition("-")[0] for file, _ in files}
    assert names >= {"experiment_state", "runtime_env_agent.log", "raylet.out", "status.json", "trial.json"}, names
    for planted in PLANTED:
        assert [file for file, content in files if planted.encode() in content] == []


def test_sentences_of_errors_have_places_without_credentials() -> None:
    error = StorageError(2, "s3://planted-key:planted-secret@bucket/x?region=r&sas=planted cannot be written")
    assert str(error) == "[Errno 2] s3://bucket/x?region=r cannot be written"
    with pytest.raises(StorageError, match=r"^s3://bucket/x") as raised:
        Folder("s3://planted-key:planted-secret@bucket/x?nonsense=1&region=r")
    assert "planted" not in str(raised.value)
