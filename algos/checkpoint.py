"""Checkpoints: a folder of safetensors and JSON with a manifest, either whole or not there.

`write_checkpoint` writes beside the target, flushes every part to the disk and renames; a reader never sees half of one.
`read_checkpoint` compares every part with the manifest's SHA-256. Nothing in it can run code.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import safetensors
import safetensors.torch
from torch import Tensor

from ..data.errors import StorageError

FORMAT = "d3ray-checkpoint"
VERSION = 1
_NAME = re.compile(r"step-(\d{9})")


def checkpoint_name(step: int) -> str:
    """The folder's name for a gradient step; names sort as steps do."""
    return f"step-{step:09d}"


def checkpoint_step(folder: Path) -> int | None:
    """The gradient step of a folder's name, or None when it is no checkpoint's."""
    found = _NAME.fullmatch(folder.name)
    return int(found.group(1)) if found else None


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Tensor],
    meta: Mapping[str, Any],
    parts: Mapping[str, bytes] | None = None,
    before_rename: Callable[[], None] | None = None,
) -> None:
    """Writes a checkpoint at `folder`, replacing one that is there.

    Args:
        folder: Where it will stand.
        tensors: What is kept, by name.
        meta: What is kept beside them; strict JSON.
        parts: Further files by name.
        before_rename: Called when everything is on the disk and nothing is in place yet; what it raises leaves no checkpoint.

    Raises:
        StorageError: the disk is full, or the place cannot be written. Nothing is left behind.
    """
    contents = {
        "tensors.safetensors": safetensors.torch.save({name: t.contiguous() for name, t in tensors.items()}),
        "meta.json": json.dumps(meta, allow_nan=False, sort_keys=True).encode(),
        **(parts or {}),
    }
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "parts": {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in contents.items()},
    }
    contents["manifest.json"] = json.dumps(manifest, indent=1).encode()
    aside = folder.parent / f".tmp-{folder.name}-{uuid4().hex[:8]}"
    try:
        aside.mkdir(parents=True)
        for name, data in contents.items():
            _write(aside / name, data)
        _flush_folder(aside)
        if before_rename is not None:
            before_rename()
        if folder.exists():
            shutil.rmtree(folder)
        aside.rename(folder)
        _flush_folder(folder.parent)
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else error.strerror or str(error)
        raise StorageError(f"The checkpoint {folder} could not be written: {reason}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, bytes]]:
    """Tensors, meta and further parts of a checkpoint.

    Raises:
        StorageError: it is not there, not whole, was changed, or is of a newer format.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
    except (OSError, ValueError):
        raise StorageError(f"{folder} holds no checkpoint: its manifest.json is missing or not JSON.") from None
    if manifest.get("format") != FORMAT or manifest.get("version", 0) > VERSION:
        raise StorageError(
            f"{folder} is of the format {manifest.get('format')} {manifest.get('version')}; this d3ray reads {FORMAT} {VERSION}."
        )
    contents: dict[str, bytes] = {}
    for name, part in manifest["parts"].items():
        try:
            data = (folder / Path(name).name).read_bytes()
        except OSError:
            raise StorageError(f"The checkpoint {folder} is not whole: {name} is missing.") from None
        if len(data) != part["bytes"] or hashlib.sha256(data).hexdigest() != part["sha256"]:
            raise StorageError(f"The checkpoint {folder} was damaged: {name} is not what was written.")
        contents[name] = data
    tensors = safetensors.torch.load(contents.pop("tensors.safetensors"))
    return tensors, json.loads(contents.pop("meta.json")), contents


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints below a folder by step, oldest first; what was never renamed into place does not count."""
    found = [path for path in folder.iterdir() if checkpoint_step(path) is not None] if folder.is_dir() else []
    return sorted(found, key=lambda path: path.name)


def newest_valid(folder: Path) -> Path | None:
    """The newest checkpoint below a folder that is whole, or None."""
    for path in reversed(checkpoints(folder)):
        try:
            read_checkpoint(path)
        except StorageError:
            continue
        return path
    return None


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
