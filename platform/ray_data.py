"""Datasets and Ray Data: `to_ray` for pipelines of your own, `from_ray` and `ShardSink` for what comes out of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..data.dataset import Dataset
from ..data.errors import ConfigError, DataError
from ..data.spec import Environment, Spec
from ..data.storage.flat import put_in_order, steps_from_flat
from ..data.storage.legal import IllegalActions
from ..data.storage.schema import kinds_of
from ..data.storage.shards import Compression
from .datasets.workers import ray_workers

if TYPE_CHECKING:
    import ray.data

    from .datasets.shard_sink import ShardSink as ShardSink


def __getattr__(name: str) -> Any:
    if name != "ShardSink":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .datasets.shard_sink import ShardSink  # a class of Ray's, which nobody waits for who only imports this module

    return ShardSink


def to_ray(dataset: Dataset, *, rows: Literal["transitions", "episodes"] = "transitions", **read: Any) -> ray.data.Dataset:
    """A dataset as one of Ray Data; Ray must be initialised.

    Columns of transitions, one row each, without closing rows: `episode` and `step` (counted from 0), `observation`, `action`,
    `reward`, `terminated`, `truncated`, what else the dataset has, `next_observation`, and `next_recorded` (false at the end of an
    episode whose final observation is missing: there `next_observation` repeats the last one). Observations of several kinds are
    `observation/KEY` and `next_observation/KEY`; where there is an `action_mask` there is a `next_action_mask`.

    Rows that are episodes hold each column as a list of T + 1 steps, closing row included, in Arrow's type: nothing that is done to
    rows can cut one. Change them with `map_batches(…, batch_format="pyarrow", batch_size=None)`, and write them to a `ShardSink`.

    Args:
        dataset: one in a folder, or derived of such, is read by Ray's workers, shard by shard; one in memory is copied into Ray's
            object store.
        rows: what a row is.
        read: for `ray.data.read_datasource`, such as `num_cpus=0` where trials hold every CPU (then consume it with
            `iter_batches`: `materialize` and `count` ask for CPUs), or `override_num_blocks`.

    Returns:
        A lazy Ray Data dataset. Its rows are in the dataset's order where `DataContext.execution_options.preserve_order` is set.

    Raises:
        ConfigError: `rows` is something else.
    """
    import ray
    import ray.data

    from .arrow_source import DerivedSource, Part, TransitionSource, transition_tables
    from .datasets.episode_source import EpisodeSource
    from .datasets.parts import parts_of

    if rows not in ("transitions", "episodes"):
        raise ConfigError(f"rows is {rows!r}; choose 'transitions' or 'episodes'.")
    if rows == "episodes":
        by_episode = EpisodeSource(parts_of(dataset))
        read = {"override_num_blocks": by_episode.n_tasks, **read}
        return ray.data.read_datasource(by_episode, **read)
    if not dataset.source.in_memory:
        plain = dataset.folder if dataset.episodes.in_order else None
        source = TransitionSource(plain, dataset.episodes) if plain else DerivedSource(dataset)
        read = {"override_num_blocks": source.n_blocks, **read}
        if read.get("num_cpus") == 0:  # nothing else would bound the processes: Ray has been seen to start a hundred on two cores
            read = {"concurrency": max(1, int(ray.cluster_resources().get("CPU", 1))), **read}
        return ray.data.read_datasource(source, **read)
    episodes = dataset.episodes
    whole = Part(0, episodes.first_row, episodes.steps, np.arange(len(episodes)), episodes.final_recorded)
    return ray.data.from_arrow(list(transition_tables(dataset.columns, whole, kinds_of(dataset.columns))))


def from_ray(
    data: ray.data.Dataset,
    target: str | Path | None = None,
    *,
    name: str | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    spec: Spec | None = None,
    environment: Environment | None = None,
    provenance: Mapping[str, Any] | None = None,
    keep_float64: bool = False,
    illegal_actions: IllegalActions = "refuse",
    n_shards: int | None = None,
    compression: Compression = None,
    overwrite: bool = False,
) -> Dataset:
    """The dataset of a Ray Data dataset whose rows are transitions, in any order.

    Columns: `episode` (numbers or text, by which episodes are ordered), `step` (rising by one in an episode), `observation` (or
    `observation/KEY` each), `action`, `reward`, `terminated` and, where they are known, `truncated`, `action_mask`,
    `next_observation`, `next_action_mask`, `next_recorded`; all else become columns of the dataset. So it takes what `to_ray`
    gives. An episode ends where a flag says so, at its last row, before a step that is missing, and where `next_observation` is not
    the next row. Where there is none, final observations are missing.

    Args:
        data: the rows.
        target: a folder, new or empty, or a URI that all nodes reach: Ray's workers write it, and no more than some 128 MiB of it
            is in the memory of each. None: all of it comes into this process's memory.
        name: the dataset's; None: the target's last part.
        columns: what these columns are called here, by d3ray's name, as `{"observation": "obs"}`; of a table with a column for each
            number all of them, as `{"observation": ["age", "weight"]}`, whose names are kept.
        spec: the spaces; None: inferred, without bounds.
        environment: where the steps were taken.
        provenance: JSON-able notes on how it was made.
        keep_float64: keep float64 observations, actions and further columns as they are, not as float32.
        illegal_actions: "refuse" steps whose action was illegal by their mask, or "keep" them.
        n_shards: Arrow files of the target; None: one for each 128 MiB or less.
        compression: of the target's files: "zstd", or None.
        overwrite: replace the dataset that is at the target.

    Returns:
        It, in memory or opened where it was written.

    Raises:
        DataError: a column is missing or holds no numbers of one shape, a step comes twice, or as `Dataset.from_arrays`.
        StorageError: the target exists or cannot be written; what was there is left as it was.
    """
    from .datasets.regroup import entry_names, flat_arrays, together

    options: dict[str, Any] = {"keep_float64": keep_float64, "illegal_actions": illegal_actions}
    options["starts"] = spec.starts() if spec else None
    about: dict[str, Any] = {"spec": spec, "environment": environment, "provenance": provenance}
    if target is not None:
        from .datasets.write_rows import write_transitions

        write_transitions(
            data, target, columns, options, n_shards=n_shards, compression=compression, overwrite=overwrite, name=name, **about
        )
        return Dataset.open(target)
    with ray_workers():
        parts = [flat_arrays(b, columns) for b in data.iter_batches(batch_size=None, batch_format="pyarrow") if len(b)]
    if not parts:
        raise DataError("There is no transition in the Ray dataset.")
    about |= {"name": name or "dataset", "names": entry_names(columns)}
    return Dataset.from_steps(steps_from_flat(put_in_order(together(parts)), **options), **about)
