"""A replay buffer as one file: a NumPy archive of its arrays, with what it is as JSON."""

from __future__ import annotations

import json
import secrets
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, StorageError
from ..files import storage_errors, sync_folder
from ..spec import Spec

if TYPE_CHECKING:
    from .buffer import ReplayBuffer

VERSION = 1


def description(buffer: ReplayBuffer) -> dict[str, Any]:
    """What makes an empty buffer like this one, as JSON has it."""
    extra = {name: list(shape) for name, shape in buffer.extra.items()}
    spec = buffer.spec.model_dump(mode="json")
    return {"version": VERSION, "capacity": buffer.capacity, "n_envs": buffer.n_envs, "spec": spec, "extra": extra}


def save(buffer: ReplayBuffer, path: Path) -> None:
    """Written aside, synced and renamed. Raises StorageError."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    text = np.frombuffer(json.dumps(description(buffer)).encode(), np.uint8)
    with storage_errors("written", path):
        try:
            with aside.open("xb") as file:
                np.savez(file, allow_pickle=False, description=text, **buffer.state())
            aside.replace(path)
            sync_folder(path.parent)
        finally:
            aside.unlink(missing_ok=True)


def load(path: Path) -> ReplayBuffer:
    """See `ReplayBuffer.load`."""
    from .buffer import ReplayBuffer

    try:
        with np.load(path, allow_pickle=False) as archive:
            state = {name: archive[name] for name in archive.files}
        told = json.loads(state.pop("description").tobytes())
        if told["version"] != VERSION:
            raise DataError(f"{path} is of version {told['version']} of saved replay buffers; this program reads {VERSION}.")
        extra = {name: tuple(shape) for name, shape in told["extra"].items()}
        buffer = ReplayBuffer(told["capacity"], Spec.check(told["spec"]), told["n_envs"], extra=extra)
    except FileNotFoundError:
        raise StorageError(f"There is no saved replay buffer at {path}.") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is no saved replay buffer, or a damaged one.") from error
    buffer.load_state(state)
    return buffer
