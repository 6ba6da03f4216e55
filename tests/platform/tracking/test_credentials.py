"""Credentials in addresses: they open what they are for, and are neither in the results nor in MLflow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from d3ray.data.errors import ConfigError
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.tracking.delivery import deliver
from d3ray.platform.tracking.place import keep_place, recorded_place
from d3ray.platform.tracking.runs import Tracking

from ..leaks import files_with
from .test_tracking import CONFIGURATION, DATASET, Case, server, storage, tracking

pytestmark = pytest.mark.long

__all__ = ["server", "storage", "tracking"]  # fixtures

KEY, SECRET = "planted-key", "planted-secret"
PLACE = f"s3://{KEY}:{SECRET}@bucket/tiny?region=eu"
SWEPT = {**CONFIGURATION, "dataset": PLACE, "search": {"dataset": {"grid": [PLACE, "other"]}}, "seeds": [0, 1]}


@pytest.fixture
def at_server(server: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a real server, without credentials; MLFLOW_TRACKING_URI has some."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://{KEY}:{SECRET}@127.0.0.1:{server}/")
    return f"http://127.0.0.1:{server}"


def test_what_is_kept_and_sent_holds_no_credentials(at_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "results"
    tracking = Tracking.open(str(results))
    case = Case.__new__(Case)
    case.experiment = Experiment.begin(
        str(results), "planted", SWEPT, {**DATASET, "source": PLACE}, tags={"d3ray.missing": json.dumps({"x": PLACE})}
    )
    keep_place(case.experiment, tracking.place)
    case.experiment.set_state("RUNNING")
    case.trial = case.experiment.trial({**CONFIGURATION, "dataset": "x"}, (0, 1), dataset={**DATASET, "source": PLACE}, number=0)
    case.train(10)
    reason = f"'{PLACE}' cannot be read: denied"
    case.trial.settle({0: {"status": "FAILED", "reason": reason}, 1: {"status": "FAILED", "reason": reason}})
    case.experiment.set_state("FAILED", reason)
    case.deliver(tracking)
    case.experiment.close()
    runs = case.runs(tracking)
    assert [entry["source"] for entry in (case.experiment.dataset, case.trial.dataset)] == ["s3://bucket/tiny?region=eu"] * 2
    assert {run.data.params["dataset"] for run in runs.values()} == {"tiny"}  # the same of parent and children
    assert json.loads(runs["parent"].data.params["search.dataset.grid"]) == ["s3://bucket/tiny?region=eu", "other"]
    assert {run.data.tags["d3ray.reason"] for run in runs.values()} == {"'s3://bucket/tiny?region=eu' cannot be read: denied"}
    assert recorded_place(str(results), "planted")["uri"] == at_server
    assert case.trial.delivered[0]["uri"] == at_server
    assert len(list(tmp_path.rglob("*.json"))) >= 6
    for planted in (KEY, SECRET):
        assert files_with(planted, tmp_path) == []  # results, and the server's own database
    with pytest.raises(ConfigError, match="begun with n_steps 40, and now n_steps is 41"):
        Experiment.begin(str(results), "planted", {**SWEPT, "n_steps": 41}, case.experiment.dataset, resume=True)
    other = json.loads(json.dumps(SWEPT).replace(SECRET, "another-secret"))
    again = Experiment.begin(str(results), "planted", other, {**DATASET, "source": PLACE}, resume=True)  # credentials may change
    monkeypatch.setenv("MLFLOW_TRACKING_URI", at_server)
    now = Tracking.open(str(results), recorded_place(str(results), "planted"))
    again.set_state("RUNNING")
    keep_place(again, now.place)
    deliver(now, again, again.trials())
    again.close()
    assert {name: run.info.run_id for name, run in case.runs(now).items()} == {n: run.info.run_id for n, run in runs.items()}
