"""Datasets that have a name: those that come with d3ray."""

from __future__ import annotations

from pathlib import Path

from .errors import DataError, did_you_mean
from .files import Place
from .manifest import MANIFEST

_SHIPPED = Path(__file__).parent / "shipped"


def catalog() -> dict[str, Path]:
    """Folder of each name, such as `d3ray/cartpole-replay`."""
    return {f"d3ray/{manifest.parent.name}": manifest.parent for manifest in sorted(_SHIPPED.glob(f"*/{MANIFEST}"))}


def find(where: str | Path) -> Place:
    """The place of a folder, a URI or a catalog name; a folder that exists wins over a name.

    Raises:
        DataError: there is no such folder and no such name; the nearest name is given.
        StorageError: a URI cannot be opened.
    """
    text = str(where)
    if "://" in text or Path(text).expanduser().exists():
        return Place(where)
    names = catalog()
    if text in names:
        return Place(names[text])
    raise DataError(f"There is no dataset folder {text!r} and no dataset of that name{did_you_mean(text, names)}")
