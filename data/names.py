"""How a dataset is found that is asked for by name. What stands above says it: `d3ray.data`, by its catalogue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .storage.files import Place

_finders: list[Callable[[str], Place]] = []


def find_by(find: Callable[[str], Place]) -> None:
    """Set the function that finds names, which raises DataError where there is none."""
    _finders[:] = [find]


def place_of(where: str | Path) -> Place:
    """Find the place of a folder, a URI or a name. A folder that exists wins over a name."""
    from .storage.files import Place

    text = str(where)
    return Place(where) if "://" in text or Path(text).expanduser().exists() or not _finders else _finders[0](text)
