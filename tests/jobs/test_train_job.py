"""What `d3ray train` says of what came of its seeds."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.node_maps.cache import cache_root
from d3ray.jobs.command.running import run_command
from d3ray.jobs.training.train import describe
from d3ray.platform.record.results import ConfigurationResult, Results, SeedResult


def seed(number: int, status: Any, *, final: bool, reason: str = "") -> SeedResult:
    return SeedResult(seed=number, trial="t", status=status, reason=reason, is_final=final, step=20, metrics={})


def results(state: Any, *seeds: SeedResult) -> Results:
    about: dict[str, Any] = {"settings": {}, "value": None, "interval": None, "level": None, "seeds": list(seeds)}
    one = ConfigurationResult(number=None, label="", chosen={}, algorithm="DQN", dataset="d", state=state, **about)
    place: dict[str, Any] = {"folder": "/results/tiny", "tracking_uri": "sqlite:////results/mlflow.db", "run_id": "run", "look": ""}
    return Results(name="tiny", state=state, objective=None, configurations=[one], models=[], **place)


def test_a_cancelled_trial_is_an_outcome_and_a_failed_one_a_fault() -> None:
    done, cancelled = seed(0, "FINISHED", final=True), seed(1, "KILLED", final=True, reason="cancelled")
    told = describe(results("FINISHED", done, cancelled))
    assert told.failed == ""
    assert told.made.splitlines() == [
        "tiny: 1 of 2 seeds are trained.",
        "  seed 0: finished at step 20",
        "  seed 1: killed at step 20  cancelled",
    ]
    faulty = describe(results("FAILED", done, seed(1, "FAILED", final=False, reason="a fault")))
    assert faulty.failed == "1 of 2 seeds failed: seed 1: a fault. Once that is mended, d3ray resume tiny storage=/results goes on."


def test_a_time_limit_is_named_only_where_there_is_one() -> None:
    result = results("KILLED", seed(0, "FINISHED", final=True), seed(1, "PENDING", final=False))
    assert describe(result).failed == "1 of 2 seeds are left; d3ray resume tiny storage=/results goes on."
    assert "left; with a larger time_limit.experiment d3ray resume" in describe(result, limited=True).failed


def test_losses_stand_where_nothing_was_evaluated() -> None:
    metrics = {"train/temperature_loss": 1.0, "train/actor_loss": -1.5, "train/critic_loss": 0.25, "holdout/critic_loss": 2.0}
    told = describe(results("FINISHED", seed(0, "FINISHED", final=True).model_copy(update={"metrics": metrics})))
    assert told.made.splitlines()[1] == "  seed 0: finished at step 20  critic_loss 0.25, actor_loss -1.500"


def test_the_share_of_tasks_that_were_solved_stands_beside_the_return() -> None:
    metrics = {"evaluation/return": -120.0, "evaluation/success": 0.45}
    told = describe(results("FINISHED", seed(0, "FINISHED", final=True).model_copy(update={"metrics": metrics})))
    assert told.made.splitlines()[1] == "  seed 0: finished at step 20  return -120  success 45 %"


def test_what_episodes_cost_stands_beside_the_return() -> None:
    metrics = {"evaluation/return": -120.0, "evaluation/cost": 12.5}
    told = describe(results("FINISHED", seed(0, "FINISHED", final=True).model_copy(update={"metrics": metrics})))
    assert told.made.splitlines()[1] == "  seed 0: finished at step 20  return -120  cost 12.5"


@pytest.mark.usefixtures("local_ray")
def test_a_file_of_logs_is_trained_on_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, logs = np.random.default_rng(5), tmp_path / "press.csv"
    with logs.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["episode", "observation:0", "observation:1", "action:0", "reward"])
        rows.writerows([k // 10, *rng.normal(size=2), rng.uniform(-4, 4), rng.normal()] for k in range(80))
    small = "{hidden_units: [8]}"
    settings = [f"algorithm.{part}_encoder={small}" for part in ("actor", "flow", "critic")]
    settings += ["algorithm.action_scaler=min_max", "algorithm.batch_size=8", f"storage={tmp_path / 'results'}"]
    train = [str(logs), "algorithm=FQL", "n_steps_per_epoch=10", *settings]
    assert run_command("train", [*train, "n_steps=10"]) == 0
    out, err = capsys.readouterr()
    assert "1 of 1 seeds are trained" in out
    (folder,) = (cache_root() / "files").glob("*/press.csv")
    assert f"{logs} is ingested into {folder}" in " ".join(err.split())
    assert "The file does not say which episodes the task ended" in err
    assert Dataset.open(folder).n_transitions == 80
    assert (tmp_path / "results" / "FQL-press.csv" / "experiment.json").exists()
    assert run_command("train", [*train, "n_steps=20", "--resume"]) == 0  # the same file is the same dataset
    assert "ingested" not in capsys.readouterr().err
