"""Files of logged experience into a dataset folder: in this process, or as a pipeline of Ray Data over the same readers.

A file is read in one part, or where it is large and its format allows in several, each of whole episodes. What comes of them is
written as pieces, which become shards once all is known; small data never leave the memory before. So the dataset's fingerprint is
the same whoever read which file, and nothing is a dataset before the last file, `dataset.json`, is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...data.catalog.entries import Entry
from ...data.catalog.local import bounded
from ...data.dataset import Dataset
from ...data.errors import ConfigError, DataError
from ...data.formats.actions import FAR, ActionsOutside
from ...data.formats.decisions.decision_log import NothingNewError
from ...data.formats.registry import check_options
from ...data.spec import Box, Environment, Spec
from ...data.storage.files import Place
from ...data.storage.legal import IllegalActions
from ...data.storage.pieces import PIECE_BYTES, Piece, Shape, write_piece
from ...data.storage.schema import check_spec, infer_spec, kinds_of, merge_largest
from ...data.storage.shards import SHARD_BYTES, Compression, ShardRecord
from ...data.storage.steps import StepTable, concat_steps
from ...data.storage.working import Progress, Run, in_process, no_progress
from ...data.storage.writing import Draft
from ...data.uris import is_remote
from ...data.version import __version__
from .committing import called, commit_pieces, space_in
from .growing import log_in, options_after, write_grown
from .parts import AmountsError, check_same_columns
from .reading import Ended, Reading, Source, SourceFile, reading
from .sources import catalog_entry, find_sources, folders_here

_NAMED = 3  # environments that are proposed
_SMALL = 1 << 26  # bytes of several files that are read in this process


@dataclass(frozen=True)
class Ingested:
    """A dataset, the files that it came from, and what a person should hear of."""

    dataset: Dataset
    files: list[SourceFile]
    notes: list[str] = field(default_factory=list[str])  # what importers decided, said once
    warnings: list[str] = field(default_factory=list[str])  # what is unusual in the data
    added: tuple[int, int] | None = None  # transitions and episodes, where a log's were added to the dataset that was there


def ingest(
    sources: str | Path | Sequence[str | Path],
    target: str | Path,
    *,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    actions: ActionsOutside = "keep",
    action_scale: float | tuple[float, ...] | None = None,
    keep_float64: bool = False,
    illegal_actions: IllegalActions = "refuse",
    environment: Environment | str | None = None,
    name: str | None = None,
    n_shards: int | None = None,
    max_rows_per_shard: int | None = None,
    compression: Compression = None,
    overwrite: bool = False,
    parallel: bool | None = None,
    progress: Progress = no_progress,
) -> Ingested:
    """Imports files, in the order given, as one dataset.

    A decision log that the dataset at the target was made of before is read on: what is new is added, as its next version.

    Args:
        sources: files, folders, patterns, URIs (see `find_sources`) or catalog names. A name brings its format, options,
            environment and bounds of actions, where they are not given here.
        target: the dataset's folder, new or empty, or a URI.
        format: a key of `data.formats.registry.FORMATS`; None: each file is looked at.
        options: settings of the importer, such as `{"timeout_at": 1000}`.
        actions: "keep" actions that lie out of the action space and count them, "clip" them to its bounds, or "refuse" the file.
        action_scale: what continuous actions are multiplied by, before they are held to bounds.
        keep_float64: keep float64 observations and actions as they are, not as float32.
        illegal_actions: "refuse" files with steps whose action is illegal by their action_mask, or "keep" those.
        environment: where the steps were taken; its spaces become the dataset's.
        name: the dataset's name; None: the target's last part.
        n_shards: as many Arrow files; None: as few as about 1 GiB each makes.
        max_rows_per_shard: rows of a file.
        compression: "zstd", or None for files that are mapped as they are.
        overwrite: replace the dataset that is at the target.
        parallel: read files side by side in Ray's workers. None: where there are several files of more than 64 MiB in all, since
            to start a Ray takes longer than to read less.
        progress: shows how far the work is: called with what is going on and how many units there are.

    Raises:
        DataError: a file cannot be read, holds NaN or infinity, or is not like the others; the sentence names it.
        ConfigError: no such format, option or environment.
        StorageError: the target exists or cannot be written, the disk is full. What was there is left as it was.
    """
    sources = [sources] if isinstance(sources, str | Path) else list(sources)
    own = {"actions": actions, "action_scale": action_scale, "keep_float64": keep_float64, "illegal_actions": illegal_actions}
    if twice := own.keys() & (options or {}).keys():
        raise ConfigError(f"{min(twice)} is a setting of its own, for every format: give it beside the importer's options.")
    known = catalog_entry(sources)
    if known is not None:
        format, options = format or known.format, {**known.options, **(options or {})}
    if format is not None:
        check_options(format, options or ())
    spec, environment = _spaces(environment)
    work = _Work(name or called(target), Shape(n_shards, max_rows_per_shard, compression), progress, known, spec, environment)
    with folders_here(sources) as (here, copies):
        files = find_sources(here, format)
        items = [Source(file, index, _copied(file, copies)) for index, file in enumerate(files)]
        if not overwrite and (there := log_in(target, items)):
            after = {**(options or {}), **own, "spec": spec, **options_after(*there)}
            return _grown(there, reading(items, format, after), target, name, work.shape)
        with Draft(target, overwrite=overwrite) as draft:
            amounts, found = frozenset[str](), None
            while found is None:
                read = reading(items, format, {**(options or {}), **own, "spec": spec, "amounts": amounts})
                try:
                    if _is_parallel(files, read) if parallel is None else parallel and len(read.parts) > 1:
                        found = _on_ray(work, draft, read, local=not all(map(is_remote, [*files, target])))
                    else:
                        found = _here(work, draft, read)
                except AmountsError as error:  # known only once a file with a negative one was read; then all are read anew
                    amounts |= error.columns
    dataset = Dataset.open(target)
    return Ingested(dataset, found, [*_said(found), *_proposed(dataset)], _warnings(dataset))


def _grown(there: tuple[Dataset, dict[str, Any]], read: Reading, target: str | Path, name: str | None, shape: Shape) -> Ingested:
    try:
        dataset, file = write_grown(*there, read, target, name, shape)
    except NothingNewError as error:
        return Ingested(there[0], [], [str(error)], added=(0, 0))
    return Ingested(dataset, [file], _said([file]), _warnings(dataset), added=(file.n_transitions, file.n_episodes))


def _copied(file: str, copies: Mapping[str, str]) -> str:
    """Map a path in a copy of a remote folder to its URI; keep other paths."""
    copy = next((copy for copy in copies if file.startswith(copy)), None)
    return file if copy is None else copies[copy] + file.removeprefix(copy)


def _is_parallel(files: Sequence[str], read: Reading) -> bool:
    return len(files) > 1 and (any(map(is_remote, files)) or read.bytes > _SMALL)


@dataclass(frozen=True)
class _Work:
    """Settings that are constant through an import."""

    name: str
    shape: Shape
    progress: Progress
    known: Entry | None
    spec: Spec | None
    environment: Environment | None


def _on_ray(work: _Work, draft: Draft, read: Reading, *, local: bool) -> list[SourceFile]:
    """Reads and writes in Ray's workers, a part or several small ones a task."""
    from .workers import in_tasks, ray_workers
    from .write_rows import pieces_of

    with space_in(draft) as space, ray_workers():
        written = pieces_of(read.parts, space.name, local=local, progress=work.progress)
        told = [text for one in written for _, text in sorted(one.told.items())]
        names = [read.parts[one.key[0]].name for one in written]
        check_same_columns(names, [one.piece.kinds for one in written])
        return _commit(work, draft, space, [one.piece for one in written], read, told, in_tasks(local=local))


def _here(work: _Work, draft: Draft, read: Reading) -> list[SourceFile]:
    """Reads part by part in this process. What is larger than a shard leaves the memory as pieces."""
    most = SHARD_BYTES if read.bytes <= SHARD_BYTES else PIECE_BYTES
    held: list[StepTable] = []
    pieces: list[Piece] = []
    told: list[str] = []
    size = 0
    with space_in(draft) as space:
        with work.progress("reading files", len(read.parts)) as advance:
            for part in read.parts:
                table, text = part.read()
                held.append(table)
                told.append(text)
                first = pieces[0].kinds if pieces else kinds_of(held[0].columns)
                check_same_columns([read.parts[0].name, part.name], [first, kinds_of(table.columns)])
                del table
                size += _bytes(held[-1])
                is_last = len(told) == len(read.parts)
                if pieces if is_last else size >= most:
                    whole = held[0] if len(held) == 1 else concat_steps(held)
                    pieces.append(write_piece(space.name, whole, sum(len(piece.steps) for piece in pieces)))
                    held, size = [], 0
                    del whole
                advance()
        return _commit(work, draft, space, pieces or held, read, told, in_process)


def _bytes(table: StepTable) -> int:
    return sum(column.nbytes for column in table.columns.values())


def _commit(
    work: _Work,
    draft: Draft,
    space: Place,
    pieces: Sequence[Piece] | Sequence[StepTable],
    read: Reading,
    told: list[str],
    run: Run,
) -> list[SourceFile]:
    files = read.files(told, Ended.of_all(pieces))
    environment = work.environment or (work.known and work.known.environment) or _agreed([file.environment for file in files])
    commit_pieces(
        draft,
        space,
        pieces,
        work.shape,
        run,
        progress=work.progress,
        spec=lambda records: _spec(records, work, files, environment),
        names=_agreed([file.names for file in files]),
        name=work.name,
        environment=environment,
        provenance=_provenance(files),
        cuts=sum(file.cuts for file in files),
    )
    return files


def _spec(records: list[ShardRecord], work: _Work, files: list[SourceFile], environment: Environment | None) -> Spec:
    """The spaces, which the steps suit, before the data is measured."""
    kinds, largest = records[0].kinds, merge_largest(record.largest for record in records)
    spec = work.spec or _agreed([file.spec for file in files])
    if spec is None:
        spec = infer_spec(kinds, largest) if work.known is None else bounded(infer_spec(kinds, largest), work.known)
    try:
        check_spec(kinds, largest, spec)
    except DataError as error:
        if environment is None:
            raise
        raise DataError(
            f"{environment.id} is not where these steps were taken: {str(error).replace('The spec', 'it', 1)}"
        ) from None
    return spec


# What several files must agree on, and what is said of them.


def _agreed(values: Sequence[Any]) -> Any:
    """Return the value if all are equal, else None."""
    return values[0] if all(value == values[0] for value in values) else None


def _spaces(environment: Environment | str | None) -> tuple[Spec | None, Environment | None]:
    if environment is None:
        return None, None
    from ...algos.environments.make import make

    environment = Environment(id=environment) if isinstance(environment, str) else environment
    vector = make(environment)
    vector.close()
    return vector.spec, environment


def _provenance(files: Sequence[SourceFile]) -> dict[str, Any]:
    keys = ("source", "bytes", "sha256", "n_transitions", "n_episodes", "notes")
    described = [{**file.provenance, **{key: getattr(file, key) for key in keys}} for file in files]
    return {"ingested": {"by": f"d3ray {__version__}", "files": described}}


def _said(files: Sequence[SourceFile]) -> list[str]:
    """Notes of all files, those that differ in numbers only said for the first of them."""
    groups: dict[str, list[tuple[SourceFile, str]]] = {}
    for file in files:
        for note in file.notes:
            groups.setdefault("".join(c for c in note if not c.isdigit()), []).append((file, note))
    if len(files) == 1:
        return [note for group in groups.values() for _, note in group]
    return [
        f"{group[0][0].source}: {group[0][1]}" + (f" (Alike in {len(group) - 1} more.)" if len(group) > 1 else "")
        for group in groups.values()
    ]


def _proposed(dataset: Dataset) -> list[str]:
    """In which environments the steps may have been taken, where nothing says it."""
    if dataset.environment is not None:
        return []
    from ...algos.environments.fitting import fitting

    if not (names := fitting(dataset)[:_NAMED]):
        return []
    listed = " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return [
        f"Shapes and bounds fit {listed}: if the steps were taken there, ingest with environment={names[0]}, which gives "
        "the bounds and is where policies are played."
    ]


def _warnings(dataset: Dataset) -> list[str]:
    outside, n, space, seen = (
        dataset.statistics.action_outside,
        dataset.n_transitions,
        dataset.spec.action,
        dataset.statistics.action,
    )
    bounds = space.bounds() if isinstance(space, Box) else None
    if not outside or bounds is None or seen is None:
        return []
    low, high = (bound.reshape(-1) for bound in bounds)
    far = np.maximum(low - np.asarray(seen.min).reshape(-1), np.asarray(seen.max).reshape(-1) - high)
    times = far / np.maximum(high - low, np.finfo(np.float64).tiny)
    worst = int(times.argmax())
    where = (
        f"{outside:,} of {n:,} actions ({outside / n:.2%}) lie outside the action space, by up to {far[worst]:.3g} "
        f"in entry {worst} ([{low[worst]:g}, {high[worst]:g}])"
    )
    if times[worst] > FAR:
        return [
            f"{where}: more than {FAR:g} times its range, so these are hardly actions of this environment. They were kept as they "
            "are; look at the source and at action_scale, or import with actions=refuse."
        ]
    return [f"{where}; they were kept as they are. If the environment clips actions, import with actions=clip."]
