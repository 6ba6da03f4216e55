"""What `d3ray train` says of what came of its seeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from d3ray.jobs.training.train import describe
from d3ray.platform.results.experiment import ExperimentResult, SeedResult


def seed(number: int, status: Any, *, final: bool, reason: str = "") -> SeedResult:
    about: dict[str, Any] = {"number": None, "step": 20, "metrics": {}, "best": None, "folder": "/results/tiny", "policy": None}
    return SeedResult(seed=number, status=status, reason=reason, final=final, **about)


def test_a_cancelled_trial_is_an_outcome_and_a_failed_one_a_fault() -> None:
    place: Any = ("/results/tiny", "sqlite:////results/mlflow.db", "run", ())
    done, cancelled = seed(0, "FINISHED", final=True), seed(1, "KILLED", final=True, reason="cancelled")
    told = describe(ExperimentResult("tiny", "FINISHED", [done, cancelled], *place))
    assert told.failed == ""
    assert told.made.splitlines() == [
        "tiny: 1 of 2 seeds are trained.",
        "  seed 0: finished at step 20",
        "  seed 1: killed at step 20  cancelled",
    ]
    faulty = describe(ExperimentResult("tiny", "FAILED", [done, seed(1, "FAILED", final=False, reason="a fault")], *place))
    assert faulty.failed == "1 of 2 seeds failed: seed 1: a fault. Once that is mended, d3ray resume tiny storage=/results goes on."


def test_a_time_limit_is_named_only_where_there_is_one() -> None:
    place: Any = ("/results/tiny", "sqlite:////results/mlflow.db", "run", ())
    result = ExperimentResult("tiny", "KILLED", [seed(0, "FINISHED", final=True), seed(1, "PENDING", final=False)], *place)
    assert describe(result).failed == "1 of 2 seeds are left; d3ray resume tiny storage=/results goes on."
    assert "left; with a larger time_limit.experiment d3ray resume" in describe(result, limited=True).failed


def test_losses_stand_where_nothing_was_evaluated() -> None:
    place: Any = ("/results/tiny", "sqlite:////results/mlflow.db", "run", ())
    metrics = {"train/temperature_loss": 1.0, "train/actor_loss": -1.5, "train/critic_loss": 0.25, "holdout/critic_loss": 2.0}
    told = describe(ExperimentResult("tiny", "FINISHED", [replace(seed(0, "FINISHED", final=True), metrics=metrics)], *place))
    assert told.made.splitlines()[1] == "  seed 0: finished at step 20  critic_loss 0.25, actor_loss -1.500"
