"""`d3ray rollback NAME`."""

from __future__ import annotations

from dataclasses import dataclass

from ..command.base import JobConfig, Result, option


class RollbackConfig(JobConfig):
    """Whose champion."""

    name: str = option(..., "the registered model, named as its experiment", operand=True, example="TD3PlusBC-hopper")
    tracking: str | None = option(None, "MLflow's tracking URI; null: MLFLOW_TRACKING_URI, else the database in storage")
    storage: str = option("./d3ray_results", "results folder whose MLflow database has the model")


@dataclass(frozen=True, kw_only=True)
class RollbackResult(Result):
    """The version that is the champion now; None where there was none to go back to."""

    version: str | None


def run(config: RollbackConfig) -> RollbackResult:
    """Moves the alias back by one promotion.

    Raises:
        ConfigError: there is no such model.
        StorageError: the server does not answer.
    """
    from ...platform.tracking.promotion import rollback

    found = rollback(config.name, tracking=config.tracking, storage=config.storage)
    if found.version is None:
        return RollbackResult(made="", failed=found.why, version=None)
    return RollbackResult(made=found.why, look={"policy": f"models:/{config.name}@champion"}, version=found.version)
