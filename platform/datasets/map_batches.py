"""A function of batches over a dataset on the cluster: reading, working out and writing side by side, on GPUs where it asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data.dataset import Dataset
from ...data.errors import ConfigError
from ...data.operations.mapped import BatchFormat, Change, kept_spaces, said
from ...data.storage.packed import NUMBER, PART, TOLD, pack, unpack
from ...data.storage.pieces import Shape
from ...data.storage.schema import merge_largest
from ...data.storage.shards import Compression
from ...data.storage.steps import StepTable
from ...data.storage.working import Progress, no_progress
from ...data.storage.writing import Draft
from ...data.uris import is_remote
from .committing import called, commit_pieces, space_in
from .parts import Part, parts_of
from .workers import in_tasks, placed, ray_workers

if TYPE_CHECKING:
    import ray.data


def map_batches(
    dataset: Dataset,
    function: Callable[..., Any],
    target: str | Path,
    *,
    batch_size: int = 4096,
    batch_format: BatchFormat = "numpy",
    arguments: Mapping[str, Any] | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    concurrency: int | tuple[int, int] = 1,
    name: str | None = None,
    n_shards: int | None = None,
    compression: Compression = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> Dataset:
    """Write the same episodes with columns that a function made as a dataset, by Ray's workers, a range of episodes at a time.

    Args:
        dataset: whose steps; read by the workers where it lies in folders.
        function: as `Dataset.map_batches`. A function is called where episodes are read. Of a class one object is made in each of
            the actors that call it, so that a model is loaded once.
        target: the folder, new or empty, or a URI, that all nodes reach.
        batch_size: rows of a batch, about; an episode is never cut.
        batch_format: "numpy" or "pyarrow".
        arguments: for the constructor of a class.
        num_cpus: of each actor; None: Ray's default.
        num_gpus: of each actor, as 1 or 0.25; None: none.
        concurrency: actors, or the fewest and the most.
        name: the dataset's; None: the target's last part.
        n_shards: as many Arrow files; None: one for each piece of 256 MiB or less that a worker wrote.
        compression: "zstd", or None.
        overwrite: replace the dataset that is at the target.
        progress: shows how far the work is.

    Returns:
        The dataset, opened where it was written; its provenance names the function and the dataset.

    Raises:
        ConfigError: the function cannot be used, or a function (not a class) asks for GPUs or CPUs.
        DataError: what it gives cannot be used; see `Dataset.map_batches`.
        StorageError: the target exists or cannot be written; what was there is left as it was.
    """
    change = Change(function, batch_size, batch_format, arguments)
    actors = isinstance(function, type)
    if not actors and (num_cpus is not None or num_gpus is not None or concurrency != 1):
        raise ConfigError("num_cpus, num_gpus and concurrency are of actors: give a class, which loads its model once in each.")
    local = not all(map(is_remote, [target, *(folder.place.name for folder in dataset.folders)]))
    parts = parts_of(dataset)
    with Draft(target, overwrite=overwrite) as draft, space_in(draft) as space, ray_workers():
        from .write_rows import pieces_of

        pool = {"num_cpus": num_cpus, "num_gpus": num_gpus, "concurrency": concurrency}
        stage = partial(_by_actors, change=change, local=local, pool=pool) if actors else None
        parts = parts if actors else [replace(part, read=partial(_read_changed, part, change)) for part in parts]
        written = pieces_of(parts, space.name, local=local, progress=progress, change=stage)
        commit_pieces(
            draft,
            space,
            [one.piece for one in written],
            Shape(n_shards, None, compression),
            in_tasks(local=local),
            progress=progress,
            spec=lambda records: kept_spaces(dataset, records[0].kinds, merge_largest(record.largest for record in records)),
            name=name or called(target),
            environment=dataset.environment,
            provenance=said(change, dataset).provenance(),
            cuts=dataset.cuts,
        )
    return Dataset.open(target)


def _read_changed(part: Part, change: Change) -> tuple[StepTable, str]:
    table, told = part.read()
    return change(table), told


def _by_actors(data: ray.data.Dataset, *, change: Change, local: bool, pool: Mapping[str, Any]) -> ray.data.Dataset:
    placing = {key: value for key, value in placed(local=local).items() if key != "max_retries"}
    constructor = {"change": change}
    return data.map_batches(_Actor, batch_format="pyarrow", batch_size=None, fn_constructor_kwargs=constructor, **placing, **pool)


class _Actor:
    """Changes rows that are episodes; what they say of themselves stays."""

    def __init__(self, change: Change) -> None:
        self._change = change

    def __call__(self, rows: Any) -> Any:
        if not len(rows):
            return rows
        out = pack(self._change(unpack(rows)))
        for name in (PART, NUMBER, TOLD):
            out = out.set_column(out.column_names.index(name), name, rows.column(name))
        return out
