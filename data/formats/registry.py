"""Which importer reads a file: decided by what is in it, never by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, DataError, did_you_mean
from .d3rlpy_hdf5 import is_d3rlpy, read_d3rlpy
from .d4rl import is_d4rl, read_d4rl
from .hdf5 import is_hdf5, listed, open_hdf5
from .imported import Imported, existing_file
from .npz import is_npz, is_zip, read_npz


@dataclass(frozen=True)
class Format:
    """One importer: how a file of its kind is known, and how it is read."""

    name: str
    description: str
    detect: Callable[[Path], bool]  # a look at first bytes and keys; False for what it does not know, DataError for what is damaged
    read: Callable[..., Imported]  # read(path, *, time_limit=None, discrete_action=None)


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("d4rl", "D4RL's HDF5: observations, actions, rewards, terminals, timeouts", is_d4rl, read_d4rl),
        Format("d3rlpy", "d3rlpy's HDF5, of versions 0.x, 1.x and 2.x", is_d3rlpy, read_d3rlpy),
        Format(
            "npz", "NumPy .npz with observations, actions, rewards and terminated, or imitation's trajectories", is_npz, read_npz
        ),
    )
}


def register_format(new: Format) -> None:
    """Adds an importer of a user's own; it is asked after those that are there.

    Raises:
        ConfigError: the name is taken.
    """
    if new.name in FORMATS:
        raise ConfigError(f"There is a format {new.name!r} already; give yours another name.")
    FORMATS[new.name] = new


def detect(path: Path | str) -> str:
    """The name of the format that a file is in.

    Raises:
        DataError: there is no such file, it is damaged, or no format knows it; then the formats are listed.
    """
    path = existing_file(path)
    for name, known in FORMATS.items():
        if known.detect(path):
            return name
    choices = "; ".join(f"{name} ({f.description})" for name, f in FORMATS.items())
    raise DataError(f"{path} {_seen(path)}; the formats are: {choices}.")


def read(path: Path | str, format: str | None = None, **options: object) -> Imported:
    """The steps in a file, by the importer named or, with None, the one that knows the file.

    Args:
        path: the file.
        format: a key of `FORMATS`.
        options: what the importer takes besides, such as `time_limit`.

    Raises:
        DataError: the file cannot be read.
        ConfigError: no format has that name.
    """
    name = detect(path) if format is None else format
    if name not in FORMATS:
        raise ConfigError(f"There is no format {name!r}{did_you_mean(name, FORMATS)}")
    return FORMATS[name].read(path, **options)


def _seen(path: Path) -> str:
    """What an unknown file is, as far as can be seen."""
    if is_hdf5(path):
        with open_hdf5(path) as file:
            return f"is HDF5 but in no known layout (it has {listed(file)})"
    if is_zip(path):
        return "is a zip archive, but none with arrays of steps"
    with path.open("rb") as file:
        head = file.read(6)
    if head[:1] == b"\x80":
        return "looks like a Python pickle, which no importer opens (restricted_pickle reads arrays out of one)"
    if head == b"\x93NUMPY":
        return "is a single NumPy array"
    return "is in no known format"
