"""Shards that are mapped where they lie, compared with their SHA-256 when this machine first maps them, and not at every opening.

What was compared is noted by path, size, time of change and start of the machine, as node maps are: in this process, and for files
of some size in the cache folder, where other processes find it.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import D3rayError
from ..storage.files import write_atomically
from ..storage.json_text import parse_json
from ..storage.manifest import Shard
from ..storage.shard_files import check_file
from .cache import cache_folder
from .node_map import boot

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
