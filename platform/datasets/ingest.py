"""Files of logged experience into a dataset folder: one in this process, many side by side through Ray Data.

Many files are read first, each into Arrow files of its own in a spool inside the draft, which tells how many episodes each has;
then shards are put together from the spool, each by the worker that writes it, and measured. So the shards, and the dataset's
fingerprint, are the same whoever read which file. Nothing is a dataset before the last file, `dataset.json`, is written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ... import __version__
from ...data.catalog.entries import Entry
from ...data.catalog.local import bounded
from ...data.dataset import Dataset
from ...data.errors import ConfigError, DataError
from ...data.formats.actions import FAR, ActionsOutside
from ...data.formats.registry import check_options
from ...data.spec import Box, Environment, Spec
from ...data.storage.legal import IllegalActions
from ...data.storage.rows import n_blocks
from ...data.storage.scan import BlockScan
from ...data.storage.schema import Kinds, check_spec, infer_spec, kinds_of, merge_largest
from ...data.storage.shards import Compression, ShardRecord, plan_shards
from ...data.storage.steps import StepTable
from ...data.storage.writing import Draft, shard_rows
from .ingest_work import (
    SPOOL,
    Run,
    ScanItem,
    ShardItem,
    Source,
    SourceFile,
    Spooled,
    delete_spool,
    import_file,
    in_process,
    ray_workers,
    scan,
    spool_file,
    write_planned_shard,
)
from .sources import catalog_entry, find_sources, folders_here, is_remote

_BLOCKS_AT_ONCE = 16  # blocks of 65,536 rows that one worker measures
_SMALL = 1 << 26  # bytes of several files that are read in this process


class Advance(Protocol):
    """Tells that `n` more units are done."""

    def __call__(self, n: float = 1) -> None: ...


Progress = Callable[[str, float | None], AbstractContextManager[Advance]]


@contextmanager
def no_progress(description: str, total: float | None = None) -> Generator[Advance]:
    """Shows nothing."""
    del description, total
    yield lambda n=1: None


@dataclass(frozen=True)
class Ingested:
    """A dataset, the files that it came from, and what a person should hear of."""

    dataset: Dataset
    files: list[SourceFile]
    notes: list[str] = field(default_factory=list[str])  # what importers decided, said once
    warnings: list[str] = field(default_factory=list[str])  # what is unusual in the data


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
    work = _Work(str(target), name, compression, progress, n_shards, max_rows_per_shard, known)
    reader = partial(import_file, format=format, spec=spec, options={**(options or {}), **own})
    with folders_here(sources) as (here, copies):
        files = find_sources(here, format)
        items = [Source(file, index, _called(file, copies)) for index, file in enumerate(files)]
        found = _import(work, target, overwrite, parallel, reader, items, spec, environment)
    dataset = Dataset.open(target)
    return Ingested(dataset, found, _said(found), _warnings(dataset))


def _called(file: str, copies: Mapping[str, str]) -> str:
    """What a file is called: where it is in a copy of a remote folder, by its URI."""
    copy = next((copy for copy in copies if file.startswith(copy)), None)
    return file if copy is None else copies[copy] + file.removeprefix(copy)


def _import(
    work: _Work,
    target: str | Path,
    overwrite: bool,
    parallel: bool | None,
    reader: Reader,
    items: list[Source],
    spec: Spec | None,
    environment: Environment | None,
) -> list[SourceFile]:
    files = [item.path for item in items]
    with Draft(target, overwrite=overwrite) as draft:
        if _is_parallel(files) if parallel is None else parallel and len(files) > 1:
            with ray_workers(local=not all(map(is_remote, [*files, target]))) as run:
                found = _through_spool(work, draft, run, reader, items, spec, environment)
        else:
            found, tables = _read_here(work, reader, items)
            _write(work, draft, in_process, found, tables, spec, environment)
    return found


@dataclass(frozen=True)
class _Work:
    """What stays the same through an import."""

    target: str
    name: str | None
    compression: Compression
    progress: Progress
    n_shards: int | None
    max_rows: int | None
    known: Entry | None


def _write(
    work: _Work,
    draft: Draft,
    run: Run,
    files: list[SourceFile],
    pieces: Sequence[StepTable] | Sequence[Spooled],
    spec: Spec | None,
    environment: Environment | None,
) -> None:
    """Shards from what was read, then what they measure, then the manifest."""
    kinds, steps = _same_kinds(files, [_kinds(piece) for piece in pieces]), [_steps(piece) for piece in pieces]
    spec = spec or _agreed([file.spec for file in files])
    environment = environment or (work.known and work.known.environment) or _agreed([file.environment for file in files])
    rows = np.concatenate(steps) + 1
    plan = plan_shards(rows, kinds, n_shards=work.n_shards, max_rows=work.max_rows)
    starts = np.cumsum([0, *map(len, steps)])
    items = [
        ShardItem(draft.folder, k, len(plan), start, _overlap(pieces, starts, start, stop), work.compression)
        for k, (start, stop) in enumerate(plan)
    ]
    records: list[ShardRecord] = []
    with work.progress("writing shards", len(items)) as advance:
        for record in run(write_planned_shard, items):
            records.append(record)
            advance()
    if spooled := [piece for piece in pieces if isinstance(piece, Spooled)]:
        delete_spool(draft.folder, spooled)
    largest = merge_largest(record.largest for record in records)
    if spec is None:
        spec = infer_spec(kinds, largest) if work.known is None else bounded(infer_spec(kinds, largest), work.known)
    try:
        check_spec(kinds, largest, spec)  # before the data is measured
    except DataError as error:
        if environment is None:
            raise
        raise DataError(
            f"{environment.id} is not where these steps were taken: {str(error).replace('The spec', 'it', 1)}"
        ) from None
    draft.commit(
        records,
        name=work.name or work.target.rstrip("/").rpartition("/")[2] or "dataset",
        spec=spec,
        environment=environment,
        provenance=_provenance(files),
        scans=_measure(work, draft, run, records, spec),
        cuts=sum(file.cuts for file in files),
    )


def _measure(work: _Work, draft: Draft, run: Run, records: list[ShardRecord], spec: Spec) -> list[BlockScan]:
    rows = shard_rows(draft.folder, records)
    n = n_blocks(rows.n)
    items = [ScanItem(rows, spec, k, min(k + _BLOCKS_AT_ONCE, n)) for k in range(0, n, _BLOCKS_AT_ONCE)]
    done: dict[int, list[BlockScan]] = {}
    with work.progress("measuring", n) as advance:
        for part in (run if len(items) > 1 else in_process)(scan, items):
            done[part.start] = part.scans
            advance(len(part.scans))
    return [scan for start in sorted(done) for scan in done[start]]


Reader = Callable[[Source], tuple[SourceFile, StepTable]]


def _read_here(work: _Work, reader: Reader, items: list[Source]) -> tuple[list[SourceFile], list[StepTable]]:
    files: list[SourceFile] = []
    tables: list[StepTable] = []
    with work.progress("reading files", len(items)) as advance:
        for file, table in map(reader, items):
            files.append(file)
            tables.append(table)
            advance()
    return files, tables


def _through_spool(
    work: _Work, draft: Draft, run: Run, reader: Reader, items: list[Source], spec: Spec | None, environment: Environment | None
) -> list[SourceFile]:
    spooled: list[Spooled] = []
    try:
        with work.progress("reading files", len(items)) as advance:
            for piece in run(partial(spool_file, reader=reader, spool=f"{draft.folder}/{SPOOL}"), items):
                spooled.append(piece)
                advance()
        spooled.sort(key=lambda piece: piece.file.index)
        files = [piece.file for piece in spooled]
        _write(work, draft, run, files, spooled, spec, environment)
    finally:
        delete_spool(draft.folder, spooled)
    return files


def _is_parallel(files: Sequence[str]) -> bool:
    if len(files) == 1 or any(map(is_remote, files)):
        return len(files) > 1
    return sum(_bytes(Path(file)) for file in files) > _SMALL


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else (path,)) if file.is_file())


# What several files must agree on, and what is said of them.


def _steps(piece: StepTable | Spooled) -> np.ndarray:
    return piece.steps


def _kinds(piece: StepTable | Spooled) -> Kinds:
    return piece.kinds if isinstance(piece, Spooled) else kinds_of(piece.columns)


def _overlap(
    pieces: Sequence[StepTable | Spooled], starts: np.ndarray, start: int, stop: int
) -> list[tuple[StepTable | Spooled, int, int]]:
    """Which episodes of which piece are episodes `start` … `stop - 1` of all."""
    first, last = np.searchsorted(starts, [start, stop - 1], side="right") - 1
    return [
        (pieces[p], max(start - int(starts[p]), 0), min(stop, int(starts[p + 1])) - int(starts[p]))
        for p in range(int(first), int(last) + 1)
    ]


def _same_kinds(files: Sequence[SourceFile], kinds: Sequence[Kinds]) -> Kinds:
    """Raises DataError, naming two files whose columns differ."""
    for file, other in zip(files, kinds, strict=True):
        for name in sorted(kinds[0].keys() | other.keys()):
            if kinds[0].get(name) != other.get(name):
                raise DataError(
                    f"{file.source} is not like {files[0].source}: its column {name!r} is {_say(other.get(name))}, "
                    f"there it is {_say(kinds[0].get(name))}."
                )
    return kinds[0]


def _say(kind: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if kind is None else f"{kind[0]} {list(kind[1])}"


def _agreed(values: Sequence[Any]) -> Any:
    """What all files say, or None."""
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
