"""`d3ray make NAME ...`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..command.base import JobConfig, Result, option
from ..command.console import progress

if TYPE_CHECKING:
    from ...data.dataset import Dataset


class MakeConfig(JobConfig):
    """Which datasets."""

    names: str | tuple[str, ...] = option(
        ...,
        "name of a dataset that has a recipe, a pattern, or several",
        operand="several",
        example="d3ray-mujoco/hopper-*-100k-v4",
    )
    at_once: int | None = option(None, "environments that are learned in side by side; null: as many as there are CPUs", ge=1)

    def after_interrupt(self, command: str) -> str:
        return f"Interrupted; what reached a checkpoint is kept. To go on: {command}"


@dataclass(frozen=True, kw_only=True)
class MakeResult(Result):
    """The datasets, opened, by name."""

    datasets: dict[str, Dataset]


def run(config: MakeConfig) -> MakeResult:
    """Makes what is not there. Raises DataError: no such name, or one without a recipe; and what failed where nothing was made."""
    from ...platform.datasets.recipes import make

    made = make(config.names, at_once=config.at_once, progress=progress)
    if made.failed and not made.datasets:
        raise next(iter(made.failed.values()))
    lines = [
        f"{name}: {dataset.n_transitions:,} transitions in {dataset.n_episodes:,} episodes, "
        f"mean return {dataset.statistics.return_.mean:.1f}."
        for name, dataset in made.datasets.items()
    ]
    first = next(iter(made.datasets))
    return MakeResult(
        made="\n".join(lines),
        look={"more": f"d3ray inspect {first}"},
        failed=" ".join(f"{name} was not made: {str(error).rstrip('.')}." for name, error in made.failed.items()),
        datasets=made.datasets,
    )
