"""A replay buffer as one file: a NumPy archive of its arrays, with what it is as JSON."""

from __future__ import annotations

import json
import secrets
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ..errors import ConfigError, DataError, StorageError
from ..spec import Spec
from ..storage.files import storage_errors, sync_folder
from ..storage.json_text import parse_json

VERSION = 1


class Saved(Protocol):
    """Replay buffer as it is saved to a file."""

    capacity: int
    spec: Spec
    n_envs: int
    extra: dict[str, tuple[int, ...]]
    options: Mapping[str, Any]

    def state(self) -> dict[str, np.ndarray]: ...

    def load_state(self, state: Mapping[str, np.ndarray]) -> None: ...


_B = TypeVar("_B", bound=Saved)
_KINDS: dict[str, type[Any]] = {}  # by their names, the buffers that lie in memory, which a file is read into


def saved(kind: type[_B]) -> type[_B]:
    """Register a class of buffers that files name; what was made of a class below it is read as this one."""
    _KINDS[kind.__name__] = kind
    return kind


class Described(NamedTuple):
    """Parameters of an empty buffer."""

    capacity: int
    spec: Spec
    n_envs: int
    extra: dict[str, tuple[int, ...]]


def describe(capacity: int, spec: Spec, n_envs: int, extra: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Describe an empty buffer as JSON."""
    shapes = {name: list(shape) for name, shape in extra.items()}
    return {"version": VERSION, "capacity": capacity, "n_envs": n_envs, "spec": spec.model_dump(mode="json"), "extra": shapes}


def described(told: Mapping[str, Any], where: object) -> Described:
    """Read what `describe` wrote. Raises DataError."""
    if (version := told.get("version", VERSION)) != VERSION:
        raise DataError(f"{where} is of version {version} of replay buffers; this program reads {VERSION}.")
    try:
        extra = {name: tuple(shape) for name, shape in told["extra"].items()}
        return Described(int(told["capacity"]), Spec.checked(told["spec"]), int(told["n_envs"]), extra)
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise DataError(f"{where} does not say what replay buffer it holds.") from error


def _fits(value: Any) -> bool:
    """Tell whether an option is the same after it was JSON, but for a tuple's being a list."""
    return value is None or isinstance(value, str | int | float) or (isinstance(value, list | tuple) and all(map(_fits, value)))


def save(buffer: Saved, path: Path) -> None:
    """Write aside, sync and rename. Raises StorageError."""
    options = buffer.options
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    told = {
        **describe(buffer.capacity, buffer.spec, buffer.n_envs, buffer.extra),
        "kind": next(cls.__name__ for cls in type(buffer).__mro__ if cls in _KINDS.values()),
        "options": {name: value for name, value in options.items() if _fits(value)},
        "left_out": [name for name, value in options.items() if not _fits(value)],
    }
    text = np.frombuffer(json.dumps(told).encode(), np.uint8)
    with storage_errors("written", path):
        try:
            with aside.open("xb") as file:
                np.savez(file, description=text, **buffer.state())  # pyright: ignore[reportArgumentType] - names are no options
            aside.replace(path)
            sync_folder(path.parent)
        finally:
            aside.unlink(missing_ok=True)


def load(path: Path, cls: type[_B], options: Mapping[str, Any]) -> _B:
    """Load a buffer; a file that says no kind, as none did once, holds a plain one. See `ReplayBuffer.load`."""
    try:
        with np.load(path) as archive:
            state = {name: archive[name] for name in archive.files}
        told = parse_json(state.pop("description").tobytes())
        was, kind = described(told, path), _KINDS[told.get("kind", "ReplayBuffer")]
        kept, left_out = dict(told.get("options", {})), set(told.get("left_out", ()))
    except DataError:
        raise
    except FileNotFoundError:
        raise StorageError(f"There is no saved replay buffer at {path}.") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is no saved replay buffer, or a damaged one.") from error
    if not issubclass(kind, cls):
        raise DataError(f"{path} holds a {kind.__name__} and no {cls.__name__}: {kind.__name__}.load opens it.")
    if wrong := sorted(left_out ^ options.keys()):
        why = "cannot be kept in a file: give it to load again" if wrong[0] in left_out else "is none that the file lacks"
        raise ConfigError(f"The option {wrong[0]!r} of the {kind.__name__} in {path} {why}.")
    make: type[Any] = kind
    buffer = make(was.capacity, was.spec, was.n_envs, extra=was.extra, **kept, **options)
    buffer.load_state(state)
    return buffer
