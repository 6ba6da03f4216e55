"""`d3ray delete EXPERIMENT`."""

from __future__ import annotations

from ..command.base import JobConfig, Result, option


class DeleteConfig(JobConfig):
    """Which experiment."""

    experiment: str = option(..., "name of the experiment", operand=True, example="TD3PlusBC-hopper")
    storage: str = option("./d3ray_results", "folder or URI of all results")

    def after_interrupt(self, command: str) -> str:
        return f"Interrupted; some of it may be deleted. To delete the rest: {command}"


def run(config: DeleteConfig) -> Result:
    """Deletes it. Its registered model stays, and so do reports that were written elsewhere.

    Raises ConfigError: it runs, or there is none; StorageError: something cannot be deleted.
    """
    from ...platform import api

    api.open(config.experiment, storage=config.storage).delete()
    return Result(made=f"{config.experiment} is deleted.")
