"""`d3ray derive SOURCE TARGET`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...data.errors import ConfigError, did_you_mean
from ...data.uris import label
from ..command.base import JobConfig, Result, option
from ..command.console import progress

if TYPE_CHECKING:
    from ...data.dataset import Dataset


class DeriveConfig(JobConfig):
    """Operations to apply, in the order of these options; each works on the result of the one before it."""

    source: str | tuple[str, ...] = option(
        ..., "dataset folder, URI or catalog name, or several", operand="several", example="datasets/hopper"
    )
    target: str = option(..., "folder of the new dataset, new or empty, or a URI", operand=True, example="datasets/hopper-best")
    shares: tuple[float, ...] | None = option(
        None, "of each source in a mix, by transitions; null: all of all sources, one after the other", example=[0.5, 0.5]
    )
    n_transitions: int | None = option(None, "of the mix; null: as many as the shares allow", ge=1)
    keep: str | None = option(
        None,
        "condition on an episode, over return, steps, terminated, truncated, final_recorded and episode (its number)",
        example="return > 100 and steps >= 50",
    )
    top: float | None = option(None, "share of the episodes to keep, those of the highest returns", gt=0, le=1, example=0.1)
    top_by: Literal["episodes", "transitions"] = option("episodes", "what `top` is a share of")
    part: Literal["train", "test"] | None = option(None, "one side of a split by episodes; null: both")
    test_size: float = option(0.2, "share of the episodes in the test part", gt=0, lt=1)
    shuffle: bool = option(False, "put the episodes in another order")
    take: int | None = option(None, "only so many episodes, the first ones", ge=1)
    reward: str | None = option(
        None,
        "new rewards: an expression over reward, observation[K], action, next_observation[K], terminated, step, steps, return; or "
        "success, cost-to-goal, delayed, sign, clip",
        example="reward - 1",
    )
    map: str | None = option(
        None,
        "function or class of batches that makes columns, as module:name; see Dataset.map_batches",
        example="encoders:Encoder",
    )
    map_arguments: dict[str, Any] = option(dict, "for the constructor of that class, as {width: 64}")
    map_gpus: float | None = option(None, "GPUs of each of the actors that call its objects", gt=0, example=1)
    map_actors: int = option(1, "how many actors call them", ge=1)
    seed: int = option(0, "of the mix, the split and the order", ge=0)
    name: str | None = option(None, "the dataset's name; null: the target's last part")
    n_shards: int | None = option(None, "files of the dataset; null: one for each GiB", ge=1)
    compression: Literal["zstd"] | None = option(None, "of the dataset's files; null: they are mapped as they are")
    parallel: bool | None = option(None, "write shards in Ray's workers; null: where there are several of more than 256 MiB in all")
    overwrite: bool = option(False, "replace the dataset that is at the target")

    def model_post_init(self, context: Any, /) -> None:
        if self.shares is None and self.n_transitions is not None:
            raise ConfigError("n_transitions is the size of a mix; give shares too, or take=N for the first N episodes.")


@dataclass(frozen=True, kw_only=True)
class DeriveResult(Result):
    """The dataset, opened."""

    dataset: Dataset


def run(config: DeriveConfig) -> DeriveResult:
    """Writes everything or leaves nothing. Raises DataError, ConfigError or StorageError."""
    from ...data.dataset import Dataset

    names = [config.source] if isinstance(config.source, str) else list(config.source)
    sources = [Dataset.open(name) for name in names]
    dataset = _written(config, derive(config, sources))
    n, returns = sum(source.n_transitions for source in sources), dataset.statistics.return_
    made = (
        f"{dataset.name}: {dataset.n_transitions:,} transitions in {dataset.n_episodes:,} episodes of {n:,} transitions, "
        f"mean return {returns.mean:.1f} (standard deviation {returns.std:.1f})."
    )
    look = {"dataset": config.target, "more": f"d3ray inspect {config.target}"}
    return DeriveResult(made=made, look=look, dataset=dataset)


def _written(config: DeriveConfig, derived: Dataset) -> Dataset:
    about: dict[str, Any] = {
        "name": config.name or label(config.target) or "dataset",
        "n_shards": config.n_shards,
        "compression": config.compression,
        "overwrite": config.overwrite,
        "progress": progress,
    }
    if config.map is None:
        from ...platform.datasets.derive import write_dataset

        return write_dataset(derived, config.target, parallel=config.parallel, **about)
    from ...platform.datasets.map_batches import map_batches

    pool = {"num_gpus": config.map_gpus, "concurrency": config.map_actors, "arguments": config.map_arguments}
    return map_batches(derived, _named(config.map), config.target, **pool, **about)


def _named(text: str) -> Any:
    """Import the object `module:name`. Raises ConfigError."""
    from ...platform.settings.plugins import import_plugins, located

    module, _, name = text.partition(":")
    if not (module and name):
        raise ConfigError(f"map is {text!r}; write module:name, as encoders:Encoder.")
    (imported,) = import_plugins(located([module]))
    found: Any = getattr(imported, name, None)
    if found is None:
        raise ConfigError(f"map is {text!r}: there is no {name!r} in that module{did_you_mean(name, vars(imported))}")
    return found


def derive(config: DeriveConfig, sources: list[Dataset]) -> Dataset:
    """The dataset that a config describes, lazily: nothing of it is written yet."""
    from ...data.dataset import Dataset

    if config.shares is not None:
        data = Dataset.mix(sources, config.shares, n_transitions=config.n_transitions, seed=config.seed)
    else:
        data = sources[0] if len(sources) == 1 else Dataset.concat(sources)
    if config.keep is not None:
        data = data.filter(config.keep)
    if config.top is not None:
        data = data.top(config.top, config.top_by)
    if config.part is not None:
        data = data.split(config.test_size, config.seed)[config.part == "test"]
    if config.shuffle:
        data = data.shuffle(config.seed)
    if config.take is not None:
        data = data.take(config.take)
    return data if config.reward is None else data.relabel(config.reward)
