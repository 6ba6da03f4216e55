"""`d3ray convert DATASET TARGET`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from ...data.errors import ConfigError, did_you_mean
from ...data.spec import Environment
from ..command.base import JobConfig, Result, option
from ..command.console import note, progress

if TYPE_CHECKING:
    from ...data.dataset import Dataset

OWN = "d3ray"
FORMATS = ("d3ray", "d4rl", "d3rlpy", "minari", "parquet", "npz")
ENDINGS = {".npz": "npz", ".parquet": "parquet"}
HDF5 = (".hdf5", ".h5", ".hdf")
FOLDERS = ("n_shards", "max_rows_per_shard", "compression", "parallel")  # options of d3ray's own folders


class ConvertConfig(JobConfig):
    """Dataset to convert, the target, and its format."""

    dataset: str = option(..., "dataset folder, URI or catalog name", operand=True, example="datasets/hopper")
    target: str = option(
        ...,
        "where to: a file or folder that is not there yet; a URI for all formats but minari",
        operand=True,
        example="hopper.hdf5",
    )
    format: str | None = option(
        None, f"{', '.join(FORMATS)}; null: npz or parquet by the target's ending, else a d3ray folder", example="d4rl"
    )
    name: str | None = option(None, "the dataset's name where the format keeps one; null: as it is")
    n_shards: int | None = option(None, "files of a d3ray folder; null: one for each GiB", ge=1)
    max_rows_per_shard: int | None = option(None, "rows of a file of a d3ray folder", ge=1)
    compression: Literal["zstd"] | None = option(None, "of the files of a d3ray folder; null: they are mapped as they are")
    parallel: bool | None = option(
        None, "write the files of a d3ray folder in Ray's workers; null: where there are several of more than 256 MiB in all"
    )
    overwrite: bool = option(False, "replace what an earlier export left at the target")


@dataclass(frozen=True, kw_only=True)
class ConvertResult(Result):
    format: str
    notes: list[str]
    """What the format could not carry."""


def run(config: ConvertConfig) -> ConvertResult:
    """Writes all of it or nothing. Raises ConfigError, DataError or StorageError."""
    from ...data.dataset import Dataset

    format = _format(config)
    dataset = Dataset.open(config.dataset)
    if format == OWN:
        return _write_folder(config, dataset)
    from ...data.exporters.registry import EXPORTERS, export

    options: dict[str, Any] = {"env_spec": env_spec(dataset.environment)} if format == "minari" else {}
    if config.name is not None:
        dataset.name = config.name
    with progress(f"writing {format}", dataset.n_transitions) as advance:
        notes = export(dataset, config.target, format, overwrite=config.overwrite, advance=advance, **options)
    for sentence in notes:
        note(sentence)
    made = f"{dataset.name}: {_counts(dataset)} as {EXPORTERS[format].description}."
    look = {format: config.target, "read it again": f"d3ray ingest {config.target} TARGET"}
    return ConvertResult(made=made, look=look, format=format, notes=notes)


def env_spec(environment: Environment | None) -> str | None:
    """Return the JSON from which Minari makes an environment: gymnasium's own spec of it, with its keyword arguments.

    None if there is no environment, gymnasium here does not know it, or an argument is not JSON.
    """
    if environment is None:
        return None
    import gymnasium

    try:
        spec = json.loads(gymnasium.spec(environment.id).to_json())
    except (gymnasium.error.Error, ImportError, ValueError):
        return None
    return json.dumps({**spec, "kwargs": {**spec.get("kwargs", {}), **environment.kwargs}})


def _format(config: ConvertConfig) -> str:
    """The format that is asked for, once the options suit it. Raises ConfigError."""
    ending = PurePosixPath(config.target).suffix.lower()
    if config.format is None and ending in HDF5:
        raise ConfigError(f"{config.target} may be HDF5 of D4RL's layout or of d3rlpy's: say format=d4rl or format=d3rlpy.")
    format = config.format or ENDINGS.get(ending, OWN)
    if format not in FORMATS:
        raise ConfigError(f"There is no exporter {format!r}{did_you_mean(format, FORMATS)}")
    if format != OWN and (given := [name for name in FOLDERS if getattr(config, name) is not None]):
        raise ConfigError(f"{given[0]} is an option of d3ray's own folders; the format is {format}.")
    return format


def _write_folder(config: ConvertConfig, dataset: Dataset) -> ConvertResult:
    from ...platform.datasets.derive import write_dataset

    written = write_dataset(
        dataset,
        config.target,
        name=config.name,
        n_shards=config.n_shards,
        max_rows_per_shard=config.max_rows_per_shard,
        compression=config.compression,
        overwrite=config.overwrite,
        parallel=config.parallel,
        progress=progress,
    )
    assert written.folder is not None
    shards, packed = len(written.folder.manifest.shards), f" with {config.compression}" if config.compression else ""
    made = f"{written.name}: {_counts(written)} in {shards} file{'s' if shards > 1 else ''}{packed}, fingerprint unchanged."
    look = {"dataset": config.target, "more": f"d3ray inspect {config.target}"}
    return ConvertResult(made=made, look=look, format=OWN, notes=[])


def _counts(dataset: Dataset) -> str:
    return f"{dataset.n_transitions:,} transitions in {dataset.n_episodes:,} episodes"
