"""`d3ray cancel EXPERIMENT`."""

from __future__ import annotations

from ..command.base import JobConfig, Result, option


class CancelConfig(JobConfig):
    """Experiment or trial to stop."""

    experiment: str = option(..., "name of the experiment", operand=True, example="TD3PlusBC-hopper")
    trial: str | None = option(None, "name of one of its trials, which then stays cancelled; null: all, and --resume goes on")
    storage: str = option("./d3ray_results", "folder or URI of all results")
    address: str | None = option(
        None, "of the cluster that runs it, where the storage is not seen from here: http://HOST:8265; null: nobody is asked"
    )


def run(config: CancelConfig) -> Result:
    """Asks it to stop, and returns at once.

    Raises:
        ConfigError: it does not run, the trial has ended, or there is no such experiment or trial.
        StorageError: the storage cannot be written.
    """
    from ...platform import api

    api.open(config.experiment, storage=config.storage, address=config.address).cancel(config.trial)
    what = config.experiment if config.trial is None else f"{config.trial} of {config.experiment}"
    return Result(made=f"{what} stops at its next epoch.", look={"how it stands": f"d3ray status {config.experiment}"})
