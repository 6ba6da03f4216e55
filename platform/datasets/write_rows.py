"""Ray Data pipelines that end in a dataset folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray.data

from ...data.storage.files import Place
from ...data.storage.pieces import Shape
from ...data.storage.working import Progress, no_progress
from ...data.storage.writing import Draft
from .committing import called, commit_pieces, space_in
from .episode_source import EpisodeSource
from .parts import Part
from .regroup import Columns, FragmentSink, entry_names, parts_by_episode
from .shard_sink import PieceSink, Written
from .workers import in_tasks, n_cpus, placed, ray_workers, watched


def pieces_of(
    parts: list[Part],
    folder: str,
    *,
    local: bool,
    progress: Progress = no_progress,
    change: Callable[[ray.data.Dataset], ray.data.Dataset] | None = None,
) -> list[Written]:
    """Reads parts and writes pieces side by side: a task reads and writes, and nothing comes through Ray's object store.

    Args:
        parts: what to read.
        folder: the workspace.
        local: what is read or written lies on this machine, so only its workers can be used.
        progress: shows how many tasks have written.
        change: what is done to rows on the way.
    """
    options, source, sink = placed(local=local), EpisodeSource(parts, min(len(parts), 2 * n_cpus())), PieceSink(folder)
    with warnings.catch_warnings(action="ignore"):  # Ray has no other way to say how often a task is tried again: for ever, unsaid
        data = ray.data.read_datasource(source, override_num_blocks=source.n_tasks, ray_remote_args=options)
    data = data if change is None else change(data)
    with progress("reading files", source.n_tasks) as advance, watched(lambda: _count(folder), advance):
        data.write_datasink(sink, ray_remote_args=options)
    return sink.written


def _count(folder: str) -> int:
    return len(Place(folder).names())


def write_transitions(
    data: ray.data.Dataset,
    target: str | Path,
    columns: Columns | None,
    options: Mapping[str, Any],
    *,
    n_shards: int | None,
    compression: Any,
    overwrite: bool,
    name: str | None,
    **about: Any,
) -> None:
    """Transitions in any order as a dataset folder; see `from_ray`."""
    with Draft(target, overwrite=overwrite) as draft, space_in(draft) as space, ray_workers():
        data.write_datasink(apart := FragmentSink(space.name, columns))
        written = pieces_of(parts_by_episode(apart.fragments, **options), space.name, local=False)
        cuts = sum(int(told) for one in written for told in one.told.values())
        pieces, shape = [one.piece for one in written], Shape(n_shards, None, compression)
        about |= {"name": name or called(target), "names": entry_names(columns), "cuts": cuts}
        commit_pieces(draft, space, pieces, shape, in_tasks(local=False), **about)
