"""Datasets of the catalog on this machine: downloaded and imported, or made, once, by one process, into the cache.

`D3RAY_CACHE` (`~/.cache/d3ray` unless set) gets `downloads/NAME.KEY/`, the files as their publisher has them, and
`datasets/NAME.KEY/`, the dataset made of them; KEY changes with the entry. Recipes have `recipes/ENVIRONMENT.KEY/`, the agent that
was trained, or the steps of a script, for all datasets of one run. None is ever removed by d3ray: each can be deleted while nothing
uses it, downloads, agents and a script's steps as soon as the datasets are there.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any, Literal

from filelock import FileLock, Timeout

from ..errors import DataError, did_you_mean
from ..node_maps.cache import cache_root
from ..spec import Box, Spec
from ..storage.files import Place, sha256_of, storage_errors
from ..storage.manifest import MANIFEST
from ..version import __version__
from .entries import Catalog, Entry, RemoteFile, catalog

if TYPE_CHECKING:
    from .download import Patience

Where = Literal["dataset", "downloaded", "in part", ""]
_MOST = 2000  # names of a family among which the nearest to a misspelt one is looked for


def find(text: str) -> Place:
    """Return the place of a catalog name, which is downloaded and imported first where it is not yet here; no recipe is followed.

    Raises DataError where there is no such name, its files are not what was published, or its recipe has not been followed yet.
    """
    if Path(text).expanduser().is_absolute():
        raise DataError(f"There is no dataset folder {text!r} on {gethostname()}, which is to open it.")
    known = catalog()
    entry = known.find(text)
    if entry is None:
        raise DataError(f"There is no dataset folder {text!r} and no dataset of that name{nearest(text, known)}")
    if entry.making is not None and state(text, entry) != "dataset":
        raise DataError(f"{text} is nowhere to be downloaded and was not made yet: d3ray make {text} makes it.")
    return Place(entry.folder) if entry.folder is not None else Place(prepare(text, entry))


def folder_here(name: str) -> Path | None:
    """Return the folder of a catalog dataset that is on this machine; nothing is fetched or made."""
    if (entry := catalog().find(name)) is None or state(name, entry) != "dataset":
        return None
    return dataset_folder(name, entry) if entry.folder is None else Path(entry.folder)


def named(source: str | Path) -> tuple[str, Entry] | None:
    """Return the name and the entry that a source of an import is; None for others. Raises DataError for a d3ray dataset."""
    text = str(source)
    if "://" in text or Path(text).expanduser().exists() or (entry := catalog().find(text)) is None:
        return None
    if entry.making is not None:
        raise DataError(f"{text} needs no import: d3ray make {text} makes a d3ray dataset of it.")
    if entry.folder is not None:
        raise DataError(f"{text} is a d3ray dataset already; d3ray inspect {text} shows it.")
    return text, entry


def nearest(name: str, known: Catalog) -> str:
    """End a sentence on a name that the catalog lacks."""
    group = name.partition("/")[0]
    names = [*known.single_names(), *(n for family in known.families if len(family) <= _MOST for n in family.names())]
    near = did_you_mean(name, [n for n in names if n.startswith(f"{group}/")] or names)
    return near if near.startswith("; did") else "; d3ray datasets lists those that there are."


def prepare(name: str, entry: Entry, *, patience: Patience | None = None) -> Path:
    """Return the folder of the dataset of an entry's files, which are downloaded and imported first where it is not there."""
    folder = dataset_folder(name, entry)
    if (folder / MANIFEST).exists():
        return folder
    with alone(folder, f"waiting for another process that prepares {name}"):
        if not (folder / MANIFEST).exists():
            files = fetch(name, entry, patience=patience)
            _import(name, entry, files, folder)
    return folder


def fetch(name: str, entry: Entry, *, patience: Patience | None = None) -> Path:
    """Return the folder of an entry's files, whole and compared with what is published; what is missing is downloaded."""
    from ..progress import progress
    from .download import download

    folder = download_folder(name, entry)
    with alone(folder, f"waiting for another process that downloads {name}"):
        for file in entry.files:
            what = f"downloading {name}" + (f" ({file.place})" if len(entry.files) > 1 else "")
            with progress(what, in_bytes=True) as advance:
                download(file, folder / file.place, lambda done, total: advance(to=done, total=total), patience)
    return folder


def download_folder(name: str, entry: Entry) -> Path:
    """Return where an entry's downloads lie, also those put there by hand."""
    return cache_root() / "downloads" / f"{entry.downloads or name}.{entry.files_key}"


def dataset_folder(name: str, entry: Entry) -> Path:
    return cache_root() / "datasets" / f"{name}.{entry.key}"


def run_folder(entry: Entry) -> Path:
    """Return where a recipe's run is kept, which its datasets share."""
    assert entry.environment is not None
    where = entry.environment.id if entry.script is None else entry.script.environment
    return cache_root() / "recipes" / f"{where}.{entry.run_key}"


def state(name: str, entry: Entry) -> Where:
    """Tell what of an entry is on this machine; a local folder that it names counts."""
    if entry.folder is not None:
        local = Place(entry.folder).local
        return "dataset" if local is not None and (local / MANIFEST).exists() else ""
    if (dataset_folder(name, entry) / MANIFEST).exists():
        return "dataset"
    if entry.making is not None:
        return "in part" if run_folder(entry).exists() else ""
    folder = download_folder(name, entry)
    there = [(folder / file.place).exists() for file in entry.files]
    return "downloaded" if all(there) else "in part" if any(there) or any(_parts(folder, entry.files)) else ""


def with_files(names: Iterable[str], known: Catalog) -> Iterator[str]:
    """Keep the names of which something may be on this machine."""
    downloads = {name for family in known.families if "files" in family.entry for name in family.names()}
    places = [cache_root() / "downloads", cache_root() / "datasets"]
    single = set(known.single_names())
    stems = {path.relative_to(place).as_posix().rpartition(".")[0] for place in places for path in place.glob("**/*.*")}
    yield from (name for name in names if name in stems or name not in downloads or name in single)


def bounded(spec: Spec, entry: Entry) -> Spec:
    """Add the bounds of actions that the entry knows to a spec without any."""
    action = spec.action
    if entry.action_range is None or not isinstance(action, Box) or action.bounds() is not None:
        return spec
    low, high = entry.action_range
    return spec.model_copy(update={"action": action.model_copy(update={"low": low, "high": high})})


def _import(name: str, entry: Entry, files: Path, folder: Path) -> None:
    """Read an entry's files, without Ray, and write the dataset of them: one file at a time is in memory, and becomes a shard.

    Raises DataError, which says how to download a broken file again.
    """
    from ..formats.registry import parts_of, read
    from ..storage.schema import check_alike, infer_spec, kinds_of, largest_numbers, merge_largest
    from ..storage.shards import ShardRecord, write_shard
    from ..storage.writing import Draft

    paths = parts_of(files, entry.format) or [files / file.place for file in entry.files]
    records, described, specs, named, kinds = list[ShardRecord](), list[dict[str, Any]](), list[Spec](), list[Any](), list[Any]()
    largest, environment, first = merge_largest([]), entry.environment, 0
    with Draft(folder) as draft:
        for k, path in enumerate(paths):
            try:
                found = read(path, entry.format, **entry.options)
                kinds.append(kinds_of(found.steps.columns))
                check_alike(kinds)
            except DataError as error:
                raise DataError(f"{str(error).rstrip('.')}; to have it downloaded again, delete {files}.") from None
            records.append(write_shard(draft.folder, k, len(paths), found.steps, first_episode=first))
            first += found.steps.n_episodes
            largest = merge_largest([largest, largest_numbers(found.steps.columns)])
            specs, named, environment = [*specs, found.spec], [*named, found.names], environment or found.environment
            described.append(
                {
                    **found.provenance,
                    **_identity(path if len(paths) > 1 else files, files, entry),
                    "n_transitions": found.steps.n_transitions,
                    "n_episodes": found.steps.n_episodes,
                    "notes": found.notes,
                }
            )
            del found
        spec = (specs[0] if all(one == specs[0] for one in specs) else None) or infer_spec(kinds[0], largest)
        spec = spec.with_names(named[0] if all(one == named[0] for one in named) else {})
        draft.commit(
            records,
            name=name,
            spec=bounded(spec, entry),
            environment=environment,
            provenance={"catalog": name, "licence": entry.licence, "ingested": {"by": f"d3ray {__version__}", "files": described}},
        )


def _identity(path: Path, folder: Path, entry: Entry) -> dict[str, Any]:
    files = [file for file in entry.files if folder / file.place == path] if len(entry.files) > 1 else entry.files
    known = [
        {"source": file.url, "bytes": (folder / file.place).stat().st_size, "sha256": sha256_of(folder / file.place)}
        for file in files or entry.files
    ]
    return {**known[0], **({"beside": known[1:]} if len(known) > 1 else {})}


@contextmanager
def alone(folder: Path, waiting: str) -> Generator[None]:
    """Lock a folder for one process; a killed one leaves the lock to the next."""
    with storage_errors("made", folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with storage_errors("locked", f"{folder}.lock"):
        lock = FileLock(f"{folder}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            from ..progress import progress

            with progress(waiting) as advance:
                advance(0)
                lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _parts(folder: Path, files: Iterable[RemoteFile]) -> Iterable[bool]:
    return ((folder / f"{file.place}.part").exists() for file in files)
