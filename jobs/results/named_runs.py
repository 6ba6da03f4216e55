"""What jobs on runs have in common: how runs are named, and how they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...data.errors import ConfigError
from ..command.base import JobConfig, option
from ..command.console import note

if TYPE_CHECKING:
    from ...platform.record.results import Results


class RunsConfig(JobConfig):
    """Which runs, and where they are."""

    runs: str | tuple[str, ...] = option(
        ...,
        "experiments, trials, CSV files or folders of them (d3rlpy's too), runs:/ID of MLflow, or models:/NAME@ALIAS",
        operand="several",
        example="TD3PlusBC-hopper",
    )
    storage: str = option("./d3ray_results", "folder or URI of all results")
    tracking: str | None = option(
        None, "MLflow's tracking URI for runs:/… and models:/…; null: MLFLOW_TRACKING_URI, else the database in storage"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Runs that were named, each once. Raises ConfigError: none."""
        if not self.runs:
            raise ConfigError("Name at least one run.")
        return (self.runs,) if isinstance(self.runs, str) else tuple(dict.fromkeys(self.runs))


def read(config: RunsConfig) -> list[Results]:
    """The results of every run that is named, of a sweep its best configurations. Raises as `report.sources.read_source`."""
    from ...platform.report.sources import read_sources
    from ...platform.report.tasks import shown
    from ...platform.settings.config import absolute

    found = read_sources(config.names, absolute(config.storage), config.tracking)
    few = [shown(one) for one in found]
    for one, best in zip(found, few, strict=True):
        if len(best.configurations) < len(one.configurations):
            note(f"Of {len(one.configurations):,} configurations of {one.name} these are the best {len(best.configurations)}.")
    return few
