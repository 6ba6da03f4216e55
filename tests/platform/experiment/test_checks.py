"""What is looked at before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from d3ray.platform.experiment.run import train_work
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
