"""Image files of strangers beside a table: members of a zip archive or files of a folder, by the names that the table gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from ...errors import DataError
from ..arrays import Array
from ..untrusted.archives import open_archive
from ..untrusted.unpacking import stored, unpacks
from .encoded_images import decode_image

KINDS = ("PNG", "JPEG", "BMP")
ENDINGS = frozenset((".png", ".jpg", ".jpeg", ".bmp"))
MAX_PIXELS = 1 << 24  # of one image; larger ones are no observations
MAX_BYTES = 1 << 28  # of one image's file

Fetch = Callable[[str], tuple[bytes, str]]  # an image's name to its bytes and what an error calls it


def read_images(names: Sequence[str], places: Sequence[Path], source: str) -> Array:
    """uint8 [N, H, W, C], row k the image called `names[k]`; C is 1, 3 or 4. An image that is named often is decoded once.

    `places` are zip archives and folders, looked through in their order; a name may leave out the folders inside an archive.
    """
    once, row = np.unique(np.asarray(names), return_inverse=True)
    with _opened(places, source) as fetch:
        decode = partial(decode_image, kinds=KINDS, most=MAX_PIXELS, convert=False)
        first = decode(*fetch(str(once[0])))
        unpacks(source, len(row) * first.nbytes)
        images = np.empty((len(once), *first.shape), np.uint8)
        for k, name in enumerate(once.tolist()):
            images[k] = decode(*fetch(name), first.shape)
    return images if (row == np.arange(len(row))).all() else images[row]


@contextmanager
def _opened(places: Sequence[Path], source: str) -> Generator[Fetch]:
    """Yield a look-up of images: the first place that has one counts. Archives stay open, one inside the other's block."""
    if not places:

        def nowhere(name: str) -> tuple[bytes, str]:
            raise DataError(
                f"{source}: there is no image {name!r}; name the zip archive or folder of the images (options.images=PATH)."
            )

        yield nowhere
        return
    place, *others = places
    with _opened(others, source) as elsewhere:
        if place.is_dir():
            yield _in_folder(place, elsewhere)
            return
        with open_archive(place) as archive:
            short: dict[str, list[str]] = {}
            for member in archive.names:
                short.setdefault(member.rpartition("/")[2], []).append(member)

            def fetch(name: str) -> tuple[bytes, str]:
                found = [name] if name in archive.sizes else short.get(name.rpartition("/")[2], [])
                if len(found) > 1:
                    raise DataError(f"{place} has several images {name!r}: {found[0]!r} and {found[1]!r}.")
                if not found:
                    return elsewhere(name)
                if archive.sizes[found[0]] > MAX_BYTES:
                    raise DataError(f"{place}: {found[0]!r} has {archive.sizes[found[0]]:,} bytes, too many for an image.")
                return archive.read(found[0]), f"{place}: {found[0]!r}"

            yield fetch


def _in_folder(folder: Path, elsewhere: Fetch) -> Fetch:
    root = folder.resolve()

    def fetch(name: str) -> tuple[bytes, str]:
        if re.match(r"[/\\]|[A-Za-z]:", name) or ".." in re.split(r"[/\\]", name):
            raise DataError(f"{folder}: the image {name!r} lies outside the folder.")
        path = folder / name
        if not path.is_file():
            return elsewhere(name)
        if not path.resolve().is_relative_to(root):
            raise DataError(f"{folder}: the image {name!r} is a link to outside the folder.")
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path} has {path.stat().st_size:,} bytes, too many for an image.")
        stored(path)
        return path.read_bytes(), str(path)

    return fetch
