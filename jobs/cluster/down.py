"""`d3ray down [FILE]`."""

from __future__ import annotations

from ...data.errors import ConfigError
from ..command.base import JobConfig, Result, option
from .up import agreed


class DownConfig(JobConfig):
    """Which cluster."""

    file: str = option("ray_cluster.yaml", "of Ray's cluster launcher, with which it was started", operand=True)
    yes: bool = option(False, "end it without asking; what runs there is killed")

    def after_interrupt(self, command: str) -> str:
        return f"Interrupted; machines may still be running. Again: {command}"


def run(config: DownConfig) -> Result:
    """Checks, asks, and runs `ray down`. Raises ConfigError: something is wrong or missing; StorageError: it failed."""
    from ...platform.cluster.launcher import ClusterFile

    file = ClusterFile.read(config.file)
    if lacking := file.lacking("down"):
        raise ConfigError(f"{config.file} cannot be used from here. {' '.join(lacking)}")
    agreed(f"End the cluster of {config.file}, with all that runs there?", config.yes)
    file.launch("down")
    return Result(made=f"The cluster of {config.file} is down.")
