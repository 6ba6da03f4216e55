"""Which files an import reads: from names, folders, patterns and URIs as a person writes them."""

from __future__ import annotations

import glob
import hashlib
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from ...data.catalog.entries import Entry
from ...data.catalog.local import fetch, named
from ...data.errors import ConfigError, DataError, did_you_mean
from ...data.formats.registry import parts_of
from ...data.storage.claims import scratch_names
from ...data.storage.files import Place, sha256_of
from ...data.storage.manifest import MANIFEST
from ...data.storage.stores.base import side_by_side
from ...data.uris import is_remote

_WILD = frozenset("*?[")


def find_sources(sources: Sequence[str | Path], format: str | None = None) -> list[str]:
    """The files (and folders of formats whose datasets are folders) that are meant, in the order given.

    Those of a folder or a pattern are sorted by name.

    Args:
        sources: files, folders, patterns such as `logs/*.h5`, or URIs of files or with a pattern as last part. A folder that is
            a dataset of a format stands for the parts that the format names; another one for all that is in it and not hidden,
            at any depth.
        format: the one format that is asked about folders; None: any.

    Raises:
        ConfigError: there is no source, or a file is meant twice.
        DataError: a file is missing, a folder is empty or a dataset already, or nothing fits a pattern.
    """
    files = [file for source in sources for file in _files(str(source), format)]
    if not files:
        raise ConfigError("There is nothing to ingest: name a file, a folder, a pattern or a URI.")
    seen: set[str] = set()
    for file in files:
        key = file if is_remote(file) else str(Path(file).absolute())
        if key in seen:
            raise ConfigError(f"{file} is given twice; its steps would count twice.")
        seen.add(key)
    return files


def catalog_entry(sources: Sequence[str | Path]) -> Entry | None:
    """Return the catalog's entry for the names among the sources, which says how to read them; None if there are none.

    Raises:
        ConfigError: two names are read in different ways.
        DataError: a name is that of a d3ray dataset, which needs no import.
    """
    found = [known for known in map(named, sources) if known is not None]
    for name, entry in found:
        if any(getattr(entry, key) != getattr(found[0][1], key) for key in ("format", "options", "environment", "action_range")):
            raise ConfigError(f"{found[0][0]} and {name} are not read in the same way: ingest one after the other.")
    return found[0][1] if found else None


@contextmanager
def folders_here(sources: Sequence[str | Path]) -> Generator[tuple[list[str | Path], dict[str, str]]]:
    """The sources with catalog names downloaded, and remote folders copied whole: many a format is more than one file.

    Yields:
        The sources, and for each copy the name or URI that it is a copy of.

    Raises:
        DataError: a remote folder is a d3ray dataset already.
    """
    with tempfile.TemporaryDirectory(prefix=scratch_names("source")) as scratch:
        here: list[str | Path] = []
        copies: dict[str, str] = {}
        for k, source in enumerate(sources):
            if (known := named(source)) is not None:
                here.append(fetch(*known))
                copies[str(here[-1])] = known[0]
                continue
            uri = str(source).rstrip("/")
            if not is_remote(source) or _WILD & set(last := Place.of_file(uri)[1]) or not (names := Place(uri).tree()):
                here.append(source)
                continue
            if MANIFEST in names:
                raise _dataset_already(uri)
            folder, copy = Place(uri), Path(scratch) / str(k) / last
            for name in names:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
            side_by_side(lambda name, folder=folder, copy=copy: folder.fetch(name, copy / name), names)
            here.append(copy)
            copies[str(copy)] = uri
        yield here, copies


@contextmanager
def local_copy(source: str) -> Generator[Path]:
    """The file or folder on this machine; a remote file is copied to a temporary one. Raises DataError where it is missing."""
    if not is_remote(source):
        yield Path(source)
        return
    folder, name = Place.of_file(source)
    with tempfile.TemporaryDirectory(prefix=scratch_names("source")) as scratch:
        try:
            folder.fetch(name, Path(scratch) / name)
        except FileNotFoundError:
            raise DataError(f"There is no file {source}.") from None
        yield Path(scratch) / name


def size_and_sha256(path: Path) -> tuple[int, str]:
    """Bytes and SHA-256 of a file; of a folder, those of all its files, hashed over their names and hashes in order of names."""
    if not path.is_dir():
        return path.stat().st_size, sha256_of(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listing = "".join(f"{sha256_of(file)}  {file.relative_to(path).as_posix()}\n" for file in files)
    return sum(file.stat().st_size for file in files), hashlib.sha256(listing.encode()).hexdigest()


def _files(source: str, format: str | None) -> list[str]:
    source = source.removeprefix("file://")
    if is_remote(source):
        return _remote_files(source)
    path = Path(source).expanduser()
    if path.is_dir():
        if (path / MANIFEST).exists():
            raise _dataset_already(path)
        found = _inside(path, format)
        if not found:
            raise DataError(f"The folder {path} has no files.")
        return found
    if path.exists():
        return [str(path)]
    if _WILD & set(source):
        fitting = [Path(found) for found in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 - takes absolute patterns
        folders = {found: parts for found in fitting if found.is_dir() and (parts := parts_of(found, format))}
        found = [
            str(part)
            for one in fitting
            if not folders.keys() & set(one.parents)  # a file of a folder that is read as one already
            for part in (folders.get(one, ()) if one.is_dir() else (one,))
        ]
        if not found:
            raise DataError(f"No file fits {source!r}.")
        return found
    beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    near = did_you_mean(path.name, beside)
    raise DataError(f"There is no file {source!r}{near if near.startswith('; did') else '.'}")


def _dataset_already(place: object) -> DataError:
    return DataError(f"{place} is a d3ray dataset already; d3ray inspect {place} shows it.")


def _inside(folder: Path, format: str | None) -> list[str]:
    """The parts of a folder that is a dataset of a format; of another one, all files and what is in its folders."""
    if parts := parts_of(folder, format):
        return [str(part) for part in parts]
    found: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        found += _inside(path, format) if path.is_dir() else [str(path)] if path.is_file() else []
    return found


def _remote_files(source: str) -> list[str]:
    folder, name = Place.of_file(source)
    if not _WILD & set(name):
        if folder.sizes([name])[name] is None:
            raise DataError(f"There is no file {source}.")
        return [source]
    found = [folder.address(file) for file in folder.names() if fnmatch(file, name)]
    if not found:
        raise DataError(f"No file fits {source!r}.")
    return found
