"""Which files an import reads: from names, folders, patterns and URIs as a person writes them."""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from ..data.errors import ConfigError, DataError, did_you_mean
from ..data.files import Place
from ..data.manifest import MANIFEST

_WILD = frozenset("*?[")


def find_sources(sources: Sequence[str | Path]) -> list[str]:
    """The files that are meant, in the order given, those of a folder or a pattern sorted by name.

    Args:
        sources: files, folders (all files in them, at any depth, that are not hidden), patterns such as `logs/*.h5`, or URIs of
            files or with a pattern as last part.

    Raises:
        ConfigError: there is no source, or a file is meant twice.
        DataError: a file is missing, a folder is empty or a dataset already, or nothing fits a pattern.
    """
    files = [file for source in sources for file in _files(str(source))]
    if not files:
        raise ConfigError("There is nothing to ingest: name a file, a folder, a pattern or a URI.")
    seen: set[str] = set()
    for file in files:
        key = file if is_remote(file) else str(Path(file).absolute())
        if key in seen:
            raise ConfigError(f"{file} is given twice; its steps would count twice.")
        seen.add(key)
    return files


def is_remote(source: str | Path) -> bool:
    """Whether a source or target is reached through pyarrow.fs."""
    return "://" in str(source) and not str(source).startswith("file://")


@contextmanager
def local_copy(source: str) -> Generator[Path]:
    """The file on this machine; a remote one is copied to a temporary folder. Raises DataError where it is missing."""
    if not is_remote(source):
        yield Path(source)
        return
    folder, _, name = source.rpartition("/")
    with tempfile.TemporaryDirectory(prefix="d3ray-") as scratch:
        try:
            Place(folder).fetch(name, Path(scratch) / name)
        except FileNotFoundError:
            raise DataError(f"There is no file {source}.") from None
        yield Path(scratch) / name


def _files(source: str) -> list[str]:
    source = source.removeprefix("file://")
    if is_remote(source):
        return _remote_files(source)
    path = Path(source).expanduser()
    if path.is_dir():
        if (path / MANIFEST).exists():
            raise DataError(f"{path} is a d3ray dataset already; d3ray inspect {path} shows it.")
        found = sorted(str(file) for file in path.rglob("*") if file.is_file() and not _hidden(file.relative_to(path)))
        if not found:
            raise DataError(f"The folder {path} has no files.")
        return found
    if path.exists():
        return [str(path)]
    if _WILD & set(source):
        found = sorted(file for file in glob.glob(str(path), recursive=True) if Path(file).is_file())  # noqa: PTH207 - takes absolute patterns
        if not found:
            raise DataError(f"No file fits {source!r}.")
        return found
    beside = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    near = did_you_mean(path.name, beside)
    raise DataError(f"There is no file {source!r}{near if near.startswith('; did') else '.'}")


def _remote_files(source: str) -> list[str]:
    folder, _, name = source.rpartition("/")
    if not _WILD & set(name):
        if Place(folder).sizes([name])[name] is None:
            raise DataError(f"There is no file {source}.")
        return [source]
    found = [f"{folder}/{file}" for file in Place(folder).names() if fnmatch(file, name)]
    if not found:
        raise DataError(f"No file fits {source!r}.")
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
