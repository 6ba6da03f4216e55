"""A dataset as a Ray Data dataset, for users' own pipelines. Training does not go this way: it maps columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.dataset import Dataset
from ..data.storage.schema import kinds_of

if TYPE_CHECKING:
    import ray.data


def to_ray(dataset: Dataset, **read: Any) -> ray.data.Dataset:
    """Transitions, one row each, without closing rows; Ray must be initialised.

    Columns: `episode` and `step` (counted from 0), `observation`, `action`, `reward`, `terminated`, `truncated`, what else the
    dataset has, `next_observation`, and `next_recorded` (false at the end of an episode whose final observation is missing:
    there `next_observation` repeats the last one). Observations of several kinds are `observation/KEY` and `next_observation/KEY`.

    Args:
        dataset: one in a folder, or derived of such, is read by Ray's workers, shard by shard; one in memory is copied into Ray's
            object store.
        read: for `ray.data.read_datasource`, such as `num_cpus=0` where trials hold every CPU (then consume it with
            `iter_batches`: `materialize` and `count` ask for CPUs), or `override_num_blocks`.

    Returns:
        A lazy Ray Data dataset. Its rows are in the dataset's order where `DataContext.execution_options.preserve_order` is set.
    """
    import ray
    import ray.data

    from .arrow_source import DerivedSource, Part, TransitionSource, transition_tables

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
