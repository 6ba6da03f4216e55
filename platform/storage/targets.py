"""Where a command writes a file or a folder to: a path, or a URI, to which it goes once it is whole."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...data.storage.claims import scratch_names
from ...data.uris import is_remote
from .folders import Folder


def ending(where: str) -> str:
    """Return the suffix of a file's name, as `.onnx`; empty for a folder. Options of a URI are no part of the name."""
    return Path(where.partition("?")[0] if is_remote(where) else where).suffix


def is_there(where: str) -> bool:
    if not is_remote(where):
        return Path(where).exists()
    folder, name = Folder.of_file(where)
    return folder.sizes([name])[name] is not None or bool((folder / name).names())


@contextmanager
def written_to(where: str) -> Generator[Path]:
    """A path on this machine to write a file or a folder to; behind a URI it goes there, in place of what is there, in the end.

    Raises:
        StorageError: the URI cannot be opened or written.
    """
    if not is_remote(where):
        yield Path(where)
        return
    folder, name = Folder.of_file(where)
    with tempfile.TemporaryDirectory(prefix=scratch_names("file")) as scratch:
        here = Path(scratch) / name
        yield here
        if here.is_dir():
            folder.put_tree(here, name)
        else:
            folder.put(here, name)
