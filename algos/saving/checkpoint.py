"""Checkpoints: a folder of safetensors and JSON with a manifest, either whole or not there (see `parts`).

Nothing in it can run code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data.storage.json_text import parse_json
from .parts import DamagedError, Kind, read_parts, write_parts

if TYPE_CHECKING:
    from torch import Tensor

KIND = Kind("d3ray-checkpoint", 1, "checkpoint")
_NAME = re.compile(r"step-(\d{9})")


def checkpoint_name(step: int) -> str:
    """The folder's name for a gradient step; names sort as steps do."""
    return f"step-{step:09d}"


def checkpoint_step(folder: Path) -> int | None:
    """Give the gradient step of a folder's name; None where it is no checkpoint's."""
    found = _NAME.fullmatch(folder.name)
    return int(found.group(1)) if found else None


def write_checkpoint(
    folder: Path,
    tensors: Mapping[str, Tensor],
    meta: Mapping[str, Any],
    parts: Mapping[str, bytes] | None = None,
    before_rename: Callable[[], None] | None = None,
) -> None:
    """Write tensors, `meta` (strict JSON) and further parts as a checkpoint at `folder`, replacing one that is there.

    `before_rename` is called when everything is on the disk and nothing is in place yet; what it raises leaves no checkpoint.
    Raises StorageError where the disk is full, or the place cannot be written or holds something else. Nothing is left behind.
    """
    from safetensors.torch import save

    contents = {
        "tensors.safetensors": save({name: t.contiguous() for name, t in tensors.items()}),
        "meta.json": json.dumps(meta, allow_nan=False, sort_keys=True).encode(),
        **(parts or {}),
    }
    write_parts(folder, KIND, contents, before_rename)


def read_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, bytes]]:
    """Read tensors, meta and further parts of a checkpoint.

    Raises DamagedError where it is not there, not whole, or was changed; StorageError where it cannot be read, or is of a newer
    format.
    """
    from safetensors.torch import load  # of torch, which a command that only looks at names need not import

    contents = read_parts(folder, KIND)
    tensors = load(contents.pop("tensors.safetensors"))
    return tensors, parse_json(contents.pop("meta.json")), contents


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints below a folder by step, oldest first; what was never renamed into place does not count."""
    found = [path for path in folder.iterdir() if checkpoint_step(path) is not None] if folder.is_dir() else []
    return sorted(found, key=lambda path: path.name)


def newest_valid(folder: Path) -> Path | None:
    """The newest checkpoint below a folder that is whole, or None. Raises StorageError where one cannot be read."""
    for path in reversed(checkpoints(folder)):
        try:
            read_checkpoint(path)
        except DamagedError:
            continue
        return path
    return None
