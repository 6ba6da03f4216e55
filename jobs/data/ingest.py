"""`d3ray ingest SOURCE TARGET`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...data.errors import ConfigError
from ...data.formats.registry import FORMATS
from ...data.spec import Environment
from ..command.base import JobConfig, Result, option
from ..command.console import note, progress
from .of_file import say

if TYPE_CHECKING:
    from ...data.dataset import Dataset


class IngestConfig(JobConfig):
    """Sources to read, where to write, and how."""

    source: str | tuple[str, ...] = option(
        ...,
        "file, folder, pattern, URI or catalog name, or several",
        operand="several",
        example="logs/*.hdf5",
    )
    target: str = option(..., "folder of the dataset, new or empty, or a URI", operand=True, example="datasets/my-logs")
    format: str | None = option(None, f"importer: {', '.join(FORMATS)}; null: found out from each file")
    environment: Environment | str | None = option(
        None, "gymnasium id (or {id, kwargs}) where the steps were taken; its spaces become the dataset's", example="Hopper-v4"
    )
    name: str | None = option(None, "the dataset's name; null: the target's last part")
    timeout_at: int | None = option(
        None, "steps; an episode that ends terminated after exactly so many was truncated", ge=1, example=1000
    )
    discrete_action: bool | None = option(None, "whether actions are discrete; null: what the file says")
    actions: Literal["keep", "clip", "refuse"] = option(
        "keep", "actions out of the action space: keep and count them, clip them to its bounds, or refuse the file"
    )
    action_scale: float | tuple[float, ...] | None = option(
        None, "what continuous actions are multiplied by, before bounds are looked at; one number, or one an entry", example=2.0
    )
    keep_float64: bool = option(False, "keep float64 observations and actions as they are, not as float32")
    illegal_actions: Literal["refuse", "keep"] = option(
        "refuse", "steps whose action is illegal by the data's action_mask: refuse the file, or keep them as they are"
    )
    join: str | None = option(None, "CSV of outcomes that are joined to a decision log: episode, step, reward, …")
    rename: dict[str, str] = option(dict, "columns by their usual name: what this file calls them, as {observations: states}")
    options: dict[str, Any] = option(dict, "further settings of the importer, such as {rewards: arriving}")
    n_shards: int | None = option(None, "files of the dataset; null: one for each GiB", ge=1)
    compression: Literal["zstd"] | None = option(None, "of the dataset's files; null: they are mapped as they are")
    parallel: bool | None = option(None, "read files in Ray's workers; null: where several have more than 64 MiB in all")
    overwrite: bool = option(False, "replace the dataset that is at the target")

    def model_post_init(self, context: Any, /) -> None:
        if twice := [
            key
            for key in (
                "timeout_at",
                "discrete_action",
                "actions",
                "action_scale",
                "keep_float64",
                "illegal_actions",
                "join",
                "rename",
            )
            if key in self.options
        ]:
            raise ConfigError(f"{twice[0]} is a setting of its own; write {twice[0]}=VALUE instead of options.{twice[0]}.")


_COST = re.compile(r"cost|loss|penalt|error|regret|expense", re.IGNORECASE)  # columns of which one wants little


@dataclass(frozen=True, kw_only=True)
class IngestResult(Result):
    """The dataset, opened."""

    dataset: Dataset


def run(config: IngestConfig) -> IngestResult:
    """Imports everything or leaves nothing. Raises DataError, ConfigError or StorageError."""
    from ...platform.datasets.ingest import ingest

    own = {
        "timeout_at": config.timeout_at,
        "discrete_action": config.discrete_action,
        "join": config.join,
        "rename": config.rename or None,
    }
    done = ingest(
        config.source,
        config.target,
        format=config.format,
        options={**config.options, **{key: value for key, value in own.items() if value is not None}},
        actions=config.actions,
        action_scale=config.action_scale,
        keep_float64=config.keep_float64,
        illegal_actions=config.illegal_actions,
        environment=config.environment,
        name=config.name,
        n_shards=config.n_shards,
        compression=config.compression,
        overwrite=config.overwrite,
        parallel=config.parallel,
        progress=progress,
    )
    say(done)
    if _COST.search(column := config.rename.get("reward", "")):
        turned = f"d3ray derive {config.target} {config.target}-turned reward=-reward"
        note(f"More of {column!r} is taken for better, as of any reward. Where less is: {turned}")
    dataset = done.dataset
    returns, files = dataset.statistics.return_, len(done.files)
    std = returns.std if isinstance(returns.std, float) else math.nan
    origin = f" from {files:,} file{'s' if files > 1 else ''}"
    if done.added is not None:
        origin = f", of which {done.added[0]:,} in {done.added[1]:,} are new"
    made = (
        f"{dataset.name}: {dataset.n_transitions:,} transitions in {dataset.n_episodes:,} episodes{origin}, "
        f"mean return {returns.mean:.1f} (standard deviation {std:.1f})."
    )
    look = {"dataset": config.target, "more": f"d3ray inspect {config.target}"}
    return IngestResult(made=made, look=look, dataset=dataset)
