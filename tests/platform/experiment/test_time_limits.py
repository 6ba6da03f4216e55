"""A trial that meets its time limit, or its experiment's, has finished with what it has, and goes on under a larger one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from d3ray.jobs.results.status import StatusConfig
from d3ray.jobs.results.status import run as status
from d3ray.jobs.training.train import describe
from d3ray.platform.experiment.run import run_experiment
from d3ray.platform.record.results import Results
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.tracking.runs import Tracking

# Trials do an epoch, and wait until their time is up.
SLOW = """
import time
from pathlib import Path
from d3ray.platform.storage.experiments import asked_to_stop
from d3ray.platform.worker import trial_run

def heed(self, call=trial_run.TrialRun.heed):
    if not self.step:  # a worker's start may take longer
        return None
    while (Path(__file__).parent / "slow").exists() and asked_to_stop(self._experiment) is None:
        time.sleep(0.01)
    return call(self)

trial_run.TrialRun.heed = heed
"""


def train(storage: Path, **changes: Any) -> Results:
    settings = {
        "name": "limited",
        "dataset": "d3ray/cartpole-replay",
        "algorithm": {"name": "DQN", "preset": "small"},
        "n_steps": 30,
        "n_steps_per_epoch": 10,
        "evaluation": {"episodes": 1},
        "storage": str(storage),
        **changes,
    }
    there = (storage / "limited").exists()
    return run_experiment(ExperimentConfig.checked(settings), resume=there)


def said(storage: Path) -> str:
    """What `d3ray status` says."""
    return "\n".join(status(StatusConfig.checked({"experiment": "limited", "storage": str(storage)})).summary())


@pytest.mark.usefixtures("local_ray")
def test_a_trial_meets_its_limit_and_goes_on_under_a_larger_one(tmp_path: Path) -> None:
    first = train(tmp_path, time_limit=0.001, checkpoint={"every": 20})
    (seed,) = first.seeds
    assert (first.state, seed.status, seed.step) == ("FINISHED", "FINISHED", 10)
    reason = "time limit of 1 s met at 10 of 30 steps; a larger time_limit.trial goes on"
    assert seed.reason == reason
    assert seed.policy is not None
    assert reason in describe(first).made
    assert not describe(first).failed
    assert "1 of 1 seeds: time limit of 1 s met at 10 of 30 steps" in said(tmp_path)
    (trial,) = Experiment.look(str(tmp_path), "limited").trials()
    assert trial.committed == 10
    assert train(tmp_path, time_limit=0.001).seeds == first.seeds  # nothing is left to do
    assert trial.folder.read("attempt") == b"1"
    (before,), (seed,) = first.seeds, train(tmp_path, time_limit=1000).seeds
    assert (seed.status, seed.step, seed.reason) == ("FINISHED", 30, "")
    assert (before.model_version, seed.model_version) == ("1", "2")
    assert trial.folder.read("attempt") == b"2"
    assert 0.001 < float(trial.folder.read_json("checkpoints/step-000000030/meta.json")["trial_state"]["seconds"]) < 1000
    assert "time limit" not in said(tmp_path)
    tracking = Tracking.open(str(tmp_path))
    assert str(tracking.client.get_model_version_by_alias("limited", "candidate").version) == "2"
    run = tracking.client.get_run(seed.run_id or "")
    assert (run.info.status, run.data.tags.get("d3ray.reason", "")) == ("FINISHED", "")


@pytest.mark.long
def test_an_experiment_meets_its_limit_and_goes_on_under_a_larger_one(local_ray: Path, tmp_path: Path) -> None:
    (local_ray / "slow_for_limits.py").write_text(SLOW)
    (local_ray / "slow").touch()
    settings: dict[str, Any] = {"seeds": [0, 1, 2, 3, 4, 5], "plugins": ["slow_for_limits"], "evaluation": None}
    try:
        first = train(tmp_path, **settings, time_limit={"experiment": 0.5})
    finally:
        (local_ray / "slow").unlink()
    ended = [seed for seed in first.seeds if seed.status == "FINISHED"]
    assert 0 < len(ended) < len(first.seeds)
    assert {(seed.step, seed.reason) for seed in ended} == {
        (10, "time limit of 1 s met at 10 of 30 steps; a larger time_limit.experiment goes on")
    }
    left = len(first.seeds) - len(ended)
    assert f"{left} of 6 seeds are left; with a larger time_limit.experiment d3ray resume" in describe(first, limited=True).failed
    again = train(tmp_path, **settings, time_limit={"experiment": 0.5})  # as much as is spent
    assert [(seed.status, seed.step) for seed in again.seeds] == [(seed.status, seed.step) for seed in first.seeds]
    last = train(tmp_path, **settings)
    assert {(seed.status, seed.step, seed.reason) for seed in last.seeds} == {("FINISHED", 30, "")}
