"""What `d3ray train` says of what came of its seeds."""

from __future__ import annotations

from typing import Any

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
