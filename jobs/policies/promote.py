"""`d3ray promote NAME`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...data.spec import Environment
from ..command.base import JobConfig, Result, option

if TYPE_CHECKING:
    from ...platform.record.policies import Promotion


class PromoteConfig(JobConfig):
    """Whose candidate, and the episodes that it and the champion play."""

    name: str = option(..., "the registered model, named as its experiment", operand=True, example="TD3PlusBC-hopper")
    environment: Environment | str | None = option(
        None, "gymnasium id, or {id: …, kwargs: {…}}; null: the environment that the candidate names", example="Hopper-v4"
    )
    by: Literal["play", "estimate"] = option(
        "play", "what decides: episodes that both play, or the newest estimates from logs, as d3ray judge makes them"
    )
    episodes: int = option(100, "episodes that each of the two plays, at least 20", gt=0, le=2000)
    seed: int = option(0, "decides how every episode is reset; equal for both")
    cost_limit: float | None = option(
        None,
        "what an episode may cost where it plays: a candidate whose upper bound is above is refused; null: costs do not count",
        ge=0,
    )
    tracking: str | None = option(None, "MLflow's tracking URI; null: MLFLOW_TRACKING_URI, else the database in storage")
    storage: str = option("./d3ray_results", "results folder whose MLflow database has the model")


@dataclass(frozen=True, kw_only=True)
class PromoteResult(Result):
    """Returns of both, and whether the candidate is the champion now."""

    promotion: Promotion


def run(config: PromoteConfig) -> PromoteResult:
    """Plays the episodes and moves the alias where the candidate's lower bound is above the champion's.

    Raises:
        ConfigError: there is no such model, too few episodes, or no environment.
        DataError: the champion cannot act in the candidate's environment.
        StorageError: the server does not answer, or a package is not whole.
    """
    from ...platform.api.policies import promote

    played: dict[str, Any] = {"environment": config.environment, "episodes": config.episodes, "seed": config.seed}
    played |= {"cost_limit": config.cost_limit}
    found = promote(config.name, by=config.by, **played, tracking=config.tracking, storage=config.storage)
    if not found.passed:
        return PromoteResult(made="", failed=found.why, promotion=found)
    look = {"policy": f"models:/{config.name}@champion", "the one before": f"d3ray rollback {config.name}"}
    return PromoteResult(made=found.why, look=look, promotion=found)
