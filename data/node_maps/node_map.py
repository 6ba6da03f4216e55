"""The node map of a dataset: one raw file a column in this machine's cache, built once and mapped by every process.

Every shard is written at its offset in the manifest, so a map has the same bytes on every machine. While it is built, the SHA-256
of every shard is compared with the manifest. It is built aside and renamed: a map is whole or not there. What several datasets make
together gets a map too, under the fingerprint that it would have if it were written.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from ..errors import D3rayError, DataError
from ..storage.files import Place, storage_errors, write_atomically
from ..storage.fingerprint import Summary, column_digest, digest
from ..storage.json_text import parse_json
from ..storage.manifest import Manifest, Shard
from ..storage.rows import BLOCK, Rows, block, n_blocks
from ..storage.schema import Kinds
from ..storage.shard_files import ShardFiles, check_file, shard_files
from ..storage.stores.base import side_by_side
from .cache import BUILDING, PLAN, Use, building, cache_folder, make_room, remove, use

_PIECE = 1 << 24  # bytes written at once
AT_ONCE = 4  # shards: a copy of each on the disk where they come from elsewhere, and 64 MiB of memory to fetch it
_BOOTS = 64  # starts of machines that have found a map whole, the latest first, and are remembered
VERSION = 2


@dataclass(frozen=True)
class Content:
    fingerprint: str
    rows: int
    kinds: Kinds
    digests: Mapping[str, str]  # of each column, as `fingerprint.column_digest`

    @property
    def bytes(self) -> int:
        return sum(self.column_bytes(name) for name in self.kinds)

    def column_bytes(self, name: str) -> int:
        dtype, shape = self.kinds[name]
        return self.rows * np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))


Write = Callable[[Path], None]  # writes the columns' files into a folder


def node_map(place: Place, manifest: Manifest, cache: Path | None = None) -> dict[str, np.ndarray]:
    """Map columns as read-only views of files in `cache`; the map is built first where there is none, or a damaged one.

    Raises DataError of a shard that is missing or not what was written, StorageError where the map has no room.
    """
    digests = {column.name: column.digest for column in manifest.columns}
    content = Content(manifest.fingerprint, manifest.n_rows, manifest.kinds, digests)

    def write(aside: Path) -> None:
        scratch = aside / "scratch"
        scratch.mkdir()
        _write_columns(shard_files(place, manifest, scratch), aside)
        scratch.rmdir()

    copies = sum(sorted(shard.bytes for shard in manifest.shards)[-AT_ONCE:]) if place.local is None else 0
    return _columns_of(content, write, copies, cache)


def node_map_of_rows(rows: Rows, kinds: Kinds, summary: Summary, cache: Path | None = None) -> dict[str, np.ndarray]:
    """Make a `node_map` of rows that lie in no folder of their own, read once, block by block.

    Raises DataError where they are not those of the summary: a function gave other rewards the second time.
    """
    content = Content(summary.fingerprint, rows.n, kinds, summary.digests)
    return _columns_of(content, lambda aside: _write_rows(rows, content, aside), 0, cache)


def _columns_of(content: Content, write: Write, copies: int, cache: Path | None) -> dict[str, np.ndarray]:
    cache = cache or cache_folder()
    entry = cache / content.fingerprint
    for _ in range(3):
        columns = _open(entry, content)
        if columns is not None:
            return columns
        with building(entry):  # one process builds, others wait for it
            if _open(entry, content) is None:
                if entry.exists():
                    remove(entry)
                    shutil.rmtree(entry, ignore_errors=True)  # a damaged one goes even if it is in use: its files stay mapped
                _build(content, write, entry, copies)
    raise RuntimeError(f"{entry} vanished three times: is something clearing the cache?")


def _build(content: Content, write: Write, entry: Path, copies: int) -> None:
    """Write the map aside and rename it. The lock of `entry` is held, so what lies aside is a killed process's."""
    aside = Path(f"{entry}{BUILDING}")
    shutil.rmtree(aside, ignore_errors=True)
    make_room(aside, content.bytes, copies)
    try:
        with storage_errors("written", aside):
            write(aside)
            (aside / PLAN).write_text(json.dumps(_plan(aside, content)))
            aside.rename(entry)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _write_rows(rows: Rows, content: Content, aside: Path) -> None:
    digests: dict[str, list[bytes]] = {name: [] for name in content.kinds}
    with ExitStack() as stack:
        files = {name: stack.enter_context((aside / file_name(name)).open("wb")) for name in content.kinds}
        for k in range(n_blocks(rows.n)):
            for name, file in files.items():
                values = np.ascontiguousarray(block(rows, name, k))
                digests[name].append(digest(values))
                file.write(values.reshape(-1).view(np.uint8).data)
    for name, parts in digests.items():
        if column_digest(parts) != content.digests[name]:
            raise DataError(
                f"The column {name!r} has other values when it is read again: what makes it does not always do the same."
            )


def _write_columns(shards: ShardFiles, aside: Path) -> None:
    """Write shards side by side, since a store answers many at once; each has its place in the columns."""
    with ExitStack() as stack:
        files = {name: stack.enter_context((aside / file_name(name)).open("wb")) for name in shards.kinds}

        def write(k: int) -> None:
            columns = shards.columns(k, verify=True)
            for name, file in files.items():
                column = np.ascontiguousarray(columns[name])
                at = int(shards.first_row[k]) * column.dtype.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))
                data = column.reshape(-1).view(np.uint8).data
                while data:
                    done = os.pwrite(file.fileno(), data[:_PIECE], at)
                    data, at = data[done:], at + done
            shards.close(k)

        side_by_side(write, range(len(shards.shards)), AT_ONCE)


def _open(entry: Path, content: Content) -> dict[str, np.ndarray] | None:
    """Map the columns; None where the map is missing, incomplete, or was changed since it was built."""
    held = use(entry)
    if held is None:
        return None
    with held:
        try:
            plan: Any = parse_json((entry / PLAN).read_bytes())
            if plan["version"] != VERSION or plan["rows"] != content.rows:
                return None
            columns = {name: _map(file, content, name, held) for name, file in _files(entry, content).items()}
            now = _plan(entry, content)
            known = now["boots"][0] in plan["boots"]
            suspect = [name for name in columns if not known or plan["files"][name] != now["files"][name]]
            if not all(_is_whole(columns[name], content, name) for name in suspect):
                return None
            if suspect:  # on a disk that machines share each keeps what the others have found
                now["boots"] = [*now["boots"], *(boot for boot in plan["boots"] if boot not in now["boots"])][:_BOOTS]
                with suppress(OSError):  # of a cache that others own: it is looked at again next time
                    write_atomically(entry / PLAN, json.dumps(now).encode())
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None
    return columns


def _plan(entry: Path, content: Content) -> dict[str, Any]:
    """Record what tells later whether a map is as it was built. It is not synced, so each machine looks at it once a start."""
    files = {name: [file.stat().st_size, file.stat().st_mtime_ns] for name, file in _files(entry, content).items()}
    size = sum(size for size, _ in files.values())
    return {"version": VERSION, "bytes": size, "rows": content.rows, "boots": [boot()], "files": files}


def boot() -> str:
    """Identify this start of the machine; where that is not known, another value at each call."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex()


def _map(file: Path, content: Content, name: str, held: Use) -> np.ndarray:
    dtype, shape = content.kinds[name]
    if file.stat().st_size != content.column_bytes(name):
        raise ValueError(f"{file} is incomplete.")
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    held.until_gone(mapped)
    return np.frombuffer(mapped, dtype=dtype).reshape(content.rows, *shape)


def _is_whole(column: np.ndarray, content: Content, name: str) -> bool:
    return column_digest(digest(column[k : k + BLOCK]) for k in range(0, len(column), BLOCK)) == content.digests[name]


def _files(entry: Path, content: Content) -> dict[str, Path]:
    return {name: entry / file_name(name) for name in content.kinds}


def file_name(column: str) -> str:
    """Name the file of a column: `observation%2Fcamera.raw` for `observation/camera`."""
    return f"{quote(column, safe='')}.raw"


_NOTED = 1 << 22  # bytes of a file that a note is kept of; smaller ones are compared anew by every process
_seen: dict[Path, Any] = {}


def check_once(path: Path, shard: Shard, label: str) -> None:
    """Compare a local shard with its SHA-256 unless that was done since the file was touched. Raises DataError."""
    check_file(path, shard, label, verify=False)
    if _seen.get(path) == (now := _state(path, shard)):
        return
    if shard.bytes < _NOTED or _noted(path) != now:
        check_file(path, shard, label, verify=True)
        note_seen(path, shard)
    _seen[path] = now


def note_seen(path: Path, shard: Shard) -> None:
    """Note that a local shard is what was written, for `check_once`."""
    _seen[path] = now = _state(path, shard)
    if shard.bytes >= _NOTED:
        with suppress(OSError, D3rayError):  # a cache that cannot be written: others compare it anew
            write_atomically(_note(path), json.dumps(now).encode())


def _state(path: Path, shard: Shard) -> list[Any]:
    found = path.stat()
    return [str(path), shard.sha256, found.st_size, found.st_mtime_ns, found.st_ino, boot()]


def _noted(path: Path) -> Any:
    with suppress(OSError, ValueError, D3rayError):
        return parse_json(_note(path).read_bytes())


def _note(path: Path) -> Path:
    return cache_folder() / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.seen"
