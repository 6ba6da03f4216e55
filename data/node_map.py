"""The node map of a dataset: one raw file a column in this machine's cache, built once and mapped by every process.

Every shard is written at its offset in the manifest, so a map has the same bytes on every machine. While it is built, the SHA-256
of every shard is compared with the manifest. It is built aside and renamed: a map is whole or not there.
"""

from __future__ import annotations

import json
import mmap
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from .cache import BUILDING, PLAN, Use, building, cache_folder, make_room, remove, use
from .files import Place, storage_errors, write_atomically
from .fingerprint import column_digest, digest_blocks
from .folder import ShardFiles, shard_files
from .manifest import Manifest
from .rows import BLOCK

_PIECE = 1 << 24  # bytes written at once
VERSION = 1


def node_map(place: Place, manifest: Manifest, cache: Path | None = None) -> dict[str, np.ndarray]:
    """Columns as read-only views of mapped files; the map is built first where there is none, or a damaged one.

    Args:
        place: the dataset's folder.
        manifest: its manifest.
        cache: None: `D3RAY_CACHE`.

    Raises:
        DataError: a shard is missing or not what was written; the sentence names it.
        StorageError: the map has no room.
    """
    entry = (cache or cache_folder()) / manifest.fingerprint
    for _ in range(3):
        columns = _open(entry, manifest)
        if columns is not None:
            return columns
        build_node_map(place, manifest, cache)
    raise RuntimeError(f"{entry} vanished three times: is something clearing the cache?")


def build_node_map(place: Place, manifest: Manifest, cache: Path | None = None) -> Path:
    """Makes sure that this machine has the map. One process builds, others wait for it; see `node_map` for errors.

    Returns:
        The map's folder.
    """
    cache = cache or cache_folder()
    entry = cache / manifest.fingerprint
    with building(entry):
        if _open(entry, manifest) is None:
            if entry.exists():
                remove(entry)
                shutil.rmtree(entry, ignore_errors=True)  # a damaged one goes even if it is in use: its files stay mapped
            _build(place, manifest, entry)
    return entry


def _build(place: Place, manifest: Manifest, entry: Path) -> None:
    """Writes the map aside and renames it. The lock of `entry` is held, so what lies aside is a killed process's."""
    aside = Path(f"{entry}{BUILDING}")
    shutil.rmtree(aside, ignore_errors=True)
    needed = sum(_column_bytes(manifest, name) for name in manifest.kinds)
    copies = max(shard.bytes for shard in manifest.shards) if place.local is None else 0
    make_room(aside, needed + copies)
    try:
        with storage_errors("written", aside):
            scratch = aside / "scratch"
            scratch.mkdir()
            _write_columns(shard_files(place, manifest, scratch), aside)
            scratch.rmdir()
            (aside / PLAN).write_text(json.dumps(_plan(aside, manifest)))
            aside.rename(entry)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write_columns(shards: ShardFiles, aside: Path) -> None:
    files = {name: (aside / file_name(name)).open("wb") for name in shards.kinds}
    try:
        for k in range(len(shards.shards)):
            columns = shards.columns(k, verify=True)
            for name, file in files.items():
                column = np.ascontiguousarray(columns[name])
                file.seek(int(shards.first_row[k]) * column.dtype.itemsize * int(np.prod(column.shape[1:], dtype=np.int64)))
                data = column.reshape(-1).view(np.uint8).data
                for start in range(0, len(data), _PIECE):
                    file.write(data[start : start + _PIECE])
            shards.close(k)
        for file in files.values():
            file.flush()
    finally:
        for file in files.values():
            file.close()


def _open(entry: Path, manifest: Manifest) -> dict[str, np.ndarray] | None:
    """The map's columns, or None where it is missing, incomplete, or was changed since it was built."""
    held = use(entry)
    if held is None:
        return None
    with held:
        try:
            plan: Any = json.loads((entry / PLAN).read_bytes())
            if plan["version"] != VERSION or plan["rows"] != manifest.n_rows:
                return None
            columns = {name: _map(file, manifest, name, held) for name, file in _files(entry, manifest).items()}
            now = _plan(entry, manifest)
            suspect = [name for name in columns if plan["boot"] != now["boot"] or plan["files"][name] != now["files"][name]]
            if not all(_is_whole(columns[name], manifest, name) for name in suspect):
                return None
            if suspect:
                with suppress(OSError):  # of a cache that others own: it is looked at again next time
                    write_atomically(entry / PLAN, json.dumps(now).encode())
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None
    return columns


def _plan(entry: Path, manifest: Manifest) -> dict[str, Any]:
    """What tells later whether a map is as it was built. It is not synced to disk, so it is not trusted after a new start."""
    files = {name: [file.stat().st_size, file.stat().st_mtime_ns] for name, file in _files(entry, manifest).items()}
    size = sum(size for size, _ in files.values())
    return {"version": VERSION, "bytes": size, "rows": manifest.n_rows, "boot": _boot(), "files": files}


def _boot() -> str:
    """Differs from one start of the machine to the next; where that is not known, from call to call."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex()


def _map(file: Path, manifest: Manifest, name: str, held: Use) -> np.ndarray:
    dtype, shape = manifest.kinds[name]
    if file.stat().st_size != _column_bytes(manifest, name):
        raise ValueError(f"{file} is incomplete.")
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    held.until_gone(mapped)
    return np.frombuffer(mapped, dtype=dtype).reshape(manifest.n_rows, *shape)


def _is_whole(column: np.ndarray, manifest: Manifest, name: str) -> bool:
    """Whether a column whose file was touched still has the bytes that it was built with."""
    expected = next(c.digest for c in manifest.columns if c.name == name)
    blocks = (digest_blocks(_Single(column), k, k + 1)[""][0] for k in range(-(-len(column) // BLOCK)))
    return column_digest(blocks) == expected


class _Single:
    """One column as rows."""

    def __init__(self, column: np.ndarray) -> None:
        self._column, self.n = column, len(column)

    def names(self) -> list[str]:
        return [""]

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        del name
        return self._column[start:stop]


def _files(entry: Path, manifest: Manifest) -> dict[str, Path]:
    return {name: entry / file_name(name) for name in manifest.kinds}


def file_name(column: str) -> str:
    """The file of a column: `observation%2Fcamera.raw` for `observation/camera`."""
    return f"{quote(column, safe='')}.raw"


def _column_bytes(manifest: Manifest, name: str) -> int:
    dtype, shape = manifest.kinds[name]
    return manifest.n_rows * np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
