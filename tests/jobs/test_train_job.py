"""What `d3ray train` says of what came of its seeds."""

from __future__ import annotations

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
    assert faulty.failed == "1 of 2 seeds failed: seed 1: a fault. Once that is mended, --resume goes on."
