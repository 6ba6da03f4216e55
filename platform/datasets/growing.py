"""The next version of a dataset that was made of a log which has grown: what is new in it, behind what was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...data.dataset import Dataset
from ...data.decision_log.layout import LogFolder, is_log
from ...data.decision_log.taken import Taken
from ...data.errors import DataError
from ...data.formats.decisions.decision_log import STATE
from ...data.storage.files import Place
from ...data.storage.manifest import MANIFEST
from ...data.storage.pieces import Shape
from ...data.storage.schema import kinds_of
from .parts import check_same_columns
from .reading import Ended, Reading, Source, SourceFile

_MAY_CHANGE = ("join", "episode_timeout")  # options that the next version may have others of


def log_in(target: str | Path, sources: Sequence[Source]) -> tuple[Dataset, dict[str, Any]] | None:
    """Open the dataset at the target, with what it says of its source, where that is the log which is imported now; else None.

    Raises DataError where it was made of another log.
    """
    if len(sources) != 1 or not is_log(Path(sources[0].path)) or Place(target).read(MANIFEST) is None:
        return None
    dataset = Dataset.open(target)
    files: list[dict[str, Any]] = dataset.provenance.get("ingested", {}).get("files", [])
    if len(files) != 1 or STATE not in files[0]:
        return None
    known = Taken.model_validate(files[0][STATE]).decisions
    if known and known.keys().isdisjoint(file.writer for file in LogFolder(sources[0].path).files("decisions")):
        raise DataError(f"{target} was made of another log than {sources[0].source}; give a new folder, or overwrite=true.")
    return dataset, files[0]


def options_after(dataset: Dataset, file: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of the importer by which it reads what is not in the dataset yet."""
    columns = tuple(name for name in dataset.kinds if name not in ("episode", "step"))
    return {"taken": file[STATE], "columns": columns}


def write_grown(
    dataset: Dataset, before: Mapping[str, Any], read: Reading, target: str | Path, name: str | None, shape: Shape
) -> tuple[Dataset, SourceFile]:
    """Write the dataset with what is new in its log behind it, in its place, and return it with what was new.

    Raises DataError where settings or columns are others, and StorageError where it cannot be written: then it is as it was.
    """
    (part,) = read.parts
    table, told = part.read()
    (file,) = read.files([told], Ended.of_all([table]))
    asked, asked_before = (
        {k: v for k, v in of.get("options", {}).items() if k not in _MAY_CHANGE} for of in (file.provenance, before)
    )
    if asked != asked_before:
        key = min(k for k in asked.keys() | asked_before.keys() if asked.get(k) != asked_before.get(k))
        was = f"{key}={asked_before[key]}" if key in asked_before else f"no {key}"
        raise DataError(f"{target} was made with {was}: say the same for its next version, or overwrite=true to make it anew.")
    check_same_columns([dataset.name, part.name], [dataset.kinds, kinds_of(table.columns)])
    new = Dataset.from_steps(table, name=dataset.name, spec=dataset.spec, environment=dataset.environment)
    whole = Dataset.concat([dataset, new], name=name or dataset.name)
    whole.provenance = {"ingested": _provenance(dataset, file)}
    assert dataset.folder is not None
    compression = shape.compression or dataset.folder.manifest.compression
    about: dict[str, Any] = {"n_shards": shape.n_shards, "max_rows_per_shard": shape.max_rows}
    return whole.write(target, overwrite=True, compression=compression, **about), file


def _provenance(dataset: Dataset, file: SourceFile) -> dict[str, Any]:
    was = {"fingerprint": dataset.fingerprint, "n_transitions": dataset.n_transitions, "n_episodes": dataset.n_episodes}
    described = {
        **file.provenance,
        "source": file.source,
        "bytes": file.bytes,
        "sha256": file.sha256,
        "n_transitions": dataset.n_transitions + file.n_transitions,
        "n_episodes": dataset.n_episodes + file.n_episodes,
        "notes": file.notes,
        "before": was,
    }
    return {"by": dataset.provenance["ingested"]["by"], "files": [described]}
