"""A replay buffer as one file: a NumPy archive of its arrays, with what it is as JSON."""

from __future__ import annotations

import json
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ConfigError, DataError, StorageError
from ..files import storage_errors, sync_folder
from ..spec import Spec

if TYPE_CHECKING:
    from .buffer import ReplayBuffer

VERSION = 1


class Described(NamedTuple):
    """What makes an empty buffer."""

    capacity: int
    spec: Spec
    n_envs: int
    extra: dict[str, tuple[int, ...]]


def describe(capacity: int, spec: Spec, n_envs: int, extra: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """What makes an empty buffer, as JSON has it."""
    shapes = {name: list(shape) for name, shape in extra.items()}
    return {"version": VERSION, "capacity": capacity, "n_envs": n_envs, "spec": spec.model_dump(mode="json"), "extra": shapes}


def described(told: Mapping[str, Any], where: object) -> Described:
    """What `describe` wrote. Raises DataError when it cannot be read."""
    if (version := told.get("version", VERSION)) != VERSION:
        raise DataError(f"{where} is of version {version} of replay buffers; this program reads {VERSION}.")
    try:
        extra = {name: tuple(shape) for name, shape in told["extra"].items()}
        return Described(int(told["capacity"]), Spec.checked(told["spec"]), int(told["n_envs"]), extra)
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise DataError(f"{where} does not say what replay buffer it holds.") from error


def save(buffer: ReplayBuffer, path: Path) -> None:
    """Written aside, synced and renamed. Raises StorageError."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    told = describe(buffer.capacity, buffer.spec, buffer.n_envs, buffer.extra)
    text = np.frombuffer(json.dumps(told).encode(), np.uint8)
    with storage_errors("written", path):
        try:
            with aside.open("xb") as file:
                np.savez(file, description=text, **buffer.state())  # pyright: ignore[reportArgumentType] - names are no options
            aside.replace(path)
            sync_folder(path.parent)
        finally:
            aside.unlink(missing_ok=True)


def load(path: Path) -> ReplayBuffer:
    """See `ReplayBuffer.load`."""
    from .buffer import ReplayBuffer

    try:
        with np.load(path) as archive:
            state = {name: archive[name] for name in archive.files}
        was = described(json.loads(state.pop("description").tobytes()), path)
    except DataError:
        raise
    except FileNotFoundError:
        raise StorageError(f"There is no saved replay buffer at {path}.") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is no saved replay buffer, or a damaged one.") from error
    buffer = ReplayBuffer(was.capacity, was.spec, was.n_envs, extra=was.extra)
    buffer.load_state(state)
    return buffer
