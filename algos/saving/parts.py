"""A folder of parts with a manifest: either whole or not there. Checkpoints and policy packages are such folders.

`write_parts` writes beside the target, flushes every part to the disk and renames; a reader never sees half of one.
`read_parts` compares every part with the manifest's SHA-256. Imports neither torch nor anything that does.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from ...data.errors import ConfigError, StorageError, did_you_mean
from ...data.storage.files import storage_errors, sync_folder
from ...data.storage.json_text import parse_json

MANIFEST = "manifest.json"


class DamagedError(StorageError):
    """A folder of parts that is not whole, or not what was written. It stays so, however often it is read."""


@dataclass(frozen=True)
class Kind:
    """A kind of folder of parts: the format's name and newest version, and what messages call it."""

    format: str
    version: int
    noun: str


def write_parts(folder: Path, kind: Kind, parts: Mapping[str, bytes], before_rename: Callable[[], None] | None = None) -> None:
    """Write the parts, by file name, at `folder`, in place of an earlier folder of the same kind that is there.

    `before_rename` is called when everything is on the disk and nothing is in place yet; what it raises leaves nothing behind.
    Raises StorageError where the disk is full, the place cannot be written, or something else stands there. Nothing is left behind.
    """
    if folder.is_file() or (folder.is_dir() and not _may_replace(folder, kind, parts)):
        raise StorageError(f"{folder} holds something else than a {kind.noun}, which would be lost: choose another place.")
    listed = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in parts.items()}
    manifest = {"format": kind.format, "version": kind.version, "parts": listed}
    aside, old = (folder.parent / f".tmp-{folder.name}-{uuid4().hex[:8]}" for _ in range(2))
    try:
        aside.mkdir(parents=True)
        for name, data in {**parts, MANIFEST: json.dumps(manifest, indent=1).encode()}.items():
            _write(aside / name, data)
        sync_folder(aside)
        if before_rename is not None:
            before_rename()
        if folder.exists():
            folder.rename(old)
        aside.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        reason = "the disk is full" if full else error.strerror or str(error)
        raise StorageError(f"The {kind.noun} {folder} could not be written: {reason}.") from error
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def rename_parts(folder: Path) -> list[str]:
    """Gives the parts of a folder file names that there are nowhere else, and notes them in its manifest; the names.

    Where nothing can be renamed into place, as in an object store, such parts may lie beside those of an earlier folder: the
    manifest that is written last says which count.
    """
    manifest, mark = parse_json((folder / MANIFEST).read_bytes()), uuid4().hex[:8]
    for name, part in manifest["parts"].items():
        part["file"] = f"{mark}-{name}"
        (folder / name).rename(folder / part["file"])
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))
    return [part["file"] for part in manifest["parts"].values()]


def read_manifest(folder: Path, kind: Kind) -> dict[str, Any]:
    """Read the manifest.

    Raises DamagedError where there is none, or it is not JSON; StorageError where it cannot be read, or is of another kind or a
    newer version.
    """
    try:
        if (written := _read(folder / MANIFEST)) is None:
            raise DamagedError(_without_manifest(folder, kind))
        manifest = parse_json(written)
    except ValueError:
        raise DamagedError(f"{folder} holds no {kind.noun}: its {MANIFEST} is not JSON.") from None
    found = manifest if isinstance(manifest, dict) else {}
    name, version = found.get("format"), found.get("version", 0)
    if name != kind.format or version > kind.version:
        raise StorageError(f"{folder} is of the format {name} {version}; this d3ray reads {kind.format} {kind.version}.")
    return found


def _without_manifest(folder: Path, kind: Kind) -> str:
    if folder.is_dir():
        return f"{folder} holds no {kind.noun}: it has no {MANIFEST}."
    if folder.exists():
        return f"{folder} is a file, and a {kind.noun} is a folder."
    beside = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
    near = did_you_mean(folder.name, beside)
    return f"There is no {kind.noun} {str(folder)!r}{near if near.startswith('; did') else ': nothing is there.'}"


def read_parts(folder: Path, kind: Kind) -> dict[str, bytes]:
    """Read every part by name.

    Raises DamagedError, which names the part, where it is not there, not whole, or was changed; StorageError as `read_manifest`.
    """
    contents: dict[str, bytes] = {}
    for name, part in read_manifest(folder, kind)["parts"].items():
        if (data := _read(folder / Path(part.get("file", name)).name)) is None:
            raise DamagedError(f"The {kind.noun} {folder} is not whole: {name} is missing.")
        if len(data) != part["bytes"] or hashlib.sha256(data).hexdigest() != part["sha256"]:
            raise DamagedError(f"The {kind.noun} {folder} was damaged: {name} is not what was written.")
        contents[name] = data
    return contents


def _read(path: Path) -> bytes | None:
    """A file's content, None where it is missing. Raises StorageError where it cannot be read, as while a disk is away."""
    with storage_errors("read", path):
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


def _may_replace(folder: Path, kind: Kind, names: Iterable[str]) -> bool:
    if {path.name for path in folder.iterdir()} <= {*names, MANIFEST}:
        return True
    try:
        manifest = parse_json((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == kind.format


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def check_free(path: Path, overwrite: bool) -> None:
    """Raises ConfigError where something is at a path, other than an empty folder, and `overwrite` is not said."""
    if not overwrite and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} is there already: save under another name, or say overwrite=True to replace it.")
