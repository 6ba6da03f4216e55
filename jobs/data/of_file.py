"""Files of logs in a dataset's place: each is ingested once, into the cache."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ...data.catalog.local import alone
from ...data.node_maps.cache import cache_root
from ...data.storage.files import sha256_of
from ...data.storage.manifest import MANIFEST
from ..command.console import note, progress

if TYPE_CHECKING:
    from ...platform.datasets.ingest import Ingested
    from ...platform.settings.config import ExperimentConfig

    C = TypeVar("C", bound=ExperimentConfig)


def with_dataset_of_file(config: C) -> C:
    """The config, whose dataset is a folder where it was a file: it is ingested as `d3ray ingest` does that is told nothing more.

    The folder follows from the file's content, so the same file again is the same dataset. Raises DataError and StorageError as
    `ingest`.
    """
    if config.dataset is None or "://" in config.dataset or not (file := Path(config.dataset).expanduser()).is_file():
        return config
    from ...platform.datasets.ingest import ingest

    folder = cache_root() / "files" / sha256_of(file)[:16] / file.name
    with alone(folder, f"waiting for another process that ingests {file}"):
        if not (folder / MANIFEST).exists():
            say(ingest(file, folder, progress=progress))
            note(f"{file} is ingested into {folder}; d3ray ingest says how to read it otherwise, d3ray inspect what it holds.")
    return config.model_copy(update={"dataset": str(folder)})


def say(done: Ingested) -> None:
    """Print what an import noticed."""
    for sentence in [*done.notes, *(f"Warning: {warning}" for warning in done.warnings)]:
        note(sentence)
