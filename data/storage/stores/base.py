"""What every store does, whose objects have a key, a content and a version that changes with each write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar


class Found(NamedTuple):
    """An object, but for its content."""

    key: str
    size: int  # bytes
    written: float | None  # seconds since 1970 by the clock of the store; None where it does not tell
    version: str = ""  # empty where the store tells it only with the content


class Readable(Protocol):
    """An object that is read in pieces, by several threads at once."""

    def read_at(self, size: int, offset: int) -> bytes:
        """Read bytes from `offset` on, fewer than `size` where it ends. Raises OSError."""
        ...


class Store(Protocol):
    """Objects by their keys, whose parts slashes divide. What goes wrong is an OSError, of a missing object FileNotFoundError.

    A writer sees its own writes at once, and so does everybody else. `create` and `replace` are decided by the store itself, as far
    as it can: of many that call one of them at the same time, one has it. One whose answer was lost is repeated, and may be refused
    by what it wrote itself; who cares looks at what is there.
    """

    def read(self, key: str) -> bytes: ...

    def read_versioned(self, key: str) -> tuple[bytes, str]:
        """Read an object, and its version."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Write an object that is whole or as it was before."""
        ...

    def create(self, key: str, content: bytes) -> str | None:
        """Create an object where there is none; return its version, None where there is one already."""
        ...

    def replace(self, key: str, content: bytes, version: str) -> str | None:
        """Replace a version of an object; return the new version, None where it is another one by now, or gone."""
        ...

    def upload(self, file: Path, key: str) -> None:
        """Write an object with a local file's content, which may be large."""
        ...

    def copy(self, key: str, to: str) -> None:
        """Copy an object of 5 GB at most, which does not pass through this machine where the store can."""
        ...

    def download(self, key: str, target: Path) -> None:
        """Copy an object, which may be large, to a local file."""
        ...

    def open(self, key: str) -> Readable:
        """Open an object, to be read in pieces."""
        ...

    def look(self, keys: Sequence[str]) -> list[Found | None]:
        """Look at objects, but for their content; None for those that are missing."""
        ...

    def list(self, folder: str) -> tuple[list[str], list[Found]]:
        """List the names of folders in a folder, and the objects in it. Both are empty where there is no folder."""
        ...

    def walk(self, folder: str) -> list[Found]:
        """List the objects in a folder at any depth."""
        ...

    def make(self, folder: str) -> None:
        """Make a folder, where a folder is more than the beginning of keys."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; what is not there is deleted already."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with all that is in it; what is not there is deleted already."""
        ...


_AT_ONCE = 32

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item], at_once: int = _AT_ONCE) -> list[Result]:
    """Call a function with each item, in threads; results are in order, and the first error that one raises is raised."""
    items = list(items)
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(at_once, len(items)), "side by side") as pool:
        return list(pool.map(function, items))
