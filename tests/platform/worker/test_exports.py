"""What becomes of a trial that has trained to its end and whose policy cannot be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from d3ray.algos.testing.tiny import tiny_dataset
from d3ray.data.errors import ConfigError, StorageError
from d3ray.platform.experiment.checks import describe_dataset
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.trials import Trial
from d3ray.platform.storage.writer import FencedError
from d3ray.platform.subjects.own import Own
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun


@pytest.fixture
def run(tmp_path: Path) -> TrialRun:
    """A trial of two seeds that has trained to its end."""
    place = str(tmp_path / "data")
    dataset = tiny_dataset(discrete=True)
    dataset.write(place)
    about: dict[str, Any] = {"algorithm": {"name": "DiscreteBC", "batch_size": 8}, "n_steps": 4, "n_steps_per_epoch": 4}
    trial = Trial.create(Folder(tmp_path / "trial"), about, (0, 1), describe_dataset(dataset, place))
    told = {**about, "dataset": place, "seeds": (0, 1), "device": "cpu", "folder": trial.folder.name}
    made = TrialRun(TrialConfig.checked(told))
    made.epoch()
    assert made.done
    return made


def raising(error: BaseException) -> Any:
    def write(*_: Any) -> None:
        raise error

    return write


@pytest.mark.parametrize(
    "error", [StorageError("The policy's copy on the CPU does not act as the policy did."), ConfigError("No."), RuntimeError("odd")]
)
def test_a_training_is_not_lost_to_an_export_that_fails(
    run: TrialRun, monkeypatch: pytest.MonkeyPatch, error: Exception, tmp_path: Path
) -> None:
    monkeypatch.setattr(Own, "write_package", raising(error))
    ended = run.finish()
    assert [about["status"] for about in ended.values()] == ["FINISHED", "FINISHED"]
    assert str(error).rstrip(".") in ended[0]["warning"]
    assert ended[0]["warning"].startswith("its policy was not exported, and its checkpoint is kept: ")
    assert (tmp_path / "trial/checkpoints/step-000000004").is_dir()


def test_one_seed_that_cannot_be_exported_costs_no_other(run: TrialRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write = Own.write_package

    def some(kind: Own, algorithm: Any, *others: Any) -> None:
        if algorithm.seed == 0:
            raise StorageError("It does not act as the policy did.")
        write(kind, algorithm, *others)

    monkeypatch.setattr(Own, "write_package", some)
    ended = run.finish()
    assert "warning" in ended[0]
    assert "warning" not in ended[1]
    assert [path.name for path in (tmp_path / "trial/policy").iterdir() if path.name.startswith("seed")] == ["seed-1"]


def test_the_graph_names_the_run_that_made_it(run: TrialRun, tmp_path: Path) -> None:
    run.finish()
    graph = onnxruntime.InferenceSession(tmp_path / "trial/policy/seed-1/policy.onnx")
    assert graph.get_modelmeta().custom_metadata_map["d3ray.run"].endswith("/trial, seed 1")


def test_what_a_resume_may_mend_is_raised(run: TrialRun, monkeypatch: pytest.MonkeyPatch) -> None:
    full = StorageError("policy cannot be written: there is no space left on its disk.")
    full.__cause__ = OSError(28, "No space left on device")
    for error in (full, FencedError("It is another's."), OSError(28, "No space left on device")):
        monkeypatch.setattr(Own, "write_package", raising(error))
        with pytest.raises(type(error)):
            run.finish()
