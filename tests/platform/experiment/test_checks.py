"""What is looked at before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from d3ray.platform.experiment.run import run_experiment, train_work
from d3ray.platform.settings.config import ExperimentConfig


@pytest.mark.parametrize(
    ("dataset", "algorithm"),
    [("cartpole-replay", "DQN"), ("pendulum-replay", "TD3PlusBC"), ("pendulum-replay", "IQL"), ("pendulum-replay", "BC")],
)
def test_shipped_datasets_train_by_a_bare_command(
    dataset: str, algorithm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    train_work(ExperimentConfig.checked({"dataset": f"d3ray/{dataset}", "algorithm": algorithm, "storage": str(tmp_path)}))
    said = [record.message for record in caplog.records]
    assert len(said) == (dataset == "pendulum-replay")
    assert all(f"{algorithm} acts in [-1, 1], and actions of 'd3ray/pendulum-replay' have bounds" in one for one in said)


@pytest.mark.long
@pytest.mark.usefixtures("local_ray")
def test_a_share_of_a_gpu_that_is_left_to_d3ray_trains_without_a_gpu(tmp_path: Path) -> None:
    settings = {
        "dataset": "d3ray/cartpole-replay",
        "algorithm": {"name": "DQN", "preset": "small"},
        "n_steps": 2,
        "evaluation": None,
        "resources": {"gpu": "auto"},
        "storage": str(tmp_path),
    }
    result = run_experiment(ExperimentConfig.checked(settings))
    assert [(seed.status, seed.step) for seed in result.seeds] == [("FINISHED", 2)]
