"""Images as arrays: PNG or JPEG that a column holds, one a step, or files beside a table, by the names that it gives."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from ...errors import DataError
from ..arrays import Array
from ..untrusted.archives import open_archive
from ..untrusted.unpacking import stored, unpacks

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's name for so many channels of 8 bits
_CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4, "P": 3, "1": 1}  # of its modes, once palettes and bits are unpacked
_MOST_PIXELS = 1 << 26  # of one image whose size nobody announced


def is_encoded(data: bytes) -> bool:
    return data.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"))


def decode_images(images: Sequence[bytes], what: str, shape: Sequence[int | None] | None = None) -> Array:
    """[N, height, width, channels] uint8 (uint16 of PNGs with 16 bits): all of one size, which is looked at before pixels are made.

    `what` is what an error calls them; `shape` [height, width, channels] what they are said to have, None where it is not said.
    """
    out: Array | None = None
    for row, data in enumerate(images):
        pixels = decode_image(data, f"{what}, row {row}", shape if out is None else out.shape[1:])
        if out is None:
            unpacks(what, len(images) * pixels.nbytes)
            out = np.empty((len(images), *pixels.shape), pixels.dtype)
        if out.dtype != pixels.dtype:
            raise DataError(f"{what} has {pixels.dtype} pixels in row {row} and {out.dtype} in row 0.")
        out[row] = pixels
    if out is None:
        raise DataError(f"{what} has no images.")
    return out


def decode_image(
    data: bytes,
    where: str,
    shape: Sequence[int | None] | None = None,
    *,
    kinds: Sequence[str] = ("PNG", "JPEG"),
    most: int = _MOST_PIXELS,
    convert: bool = True,
) -> Array:
    """Decode to [height, width, channels] uint8, or uint16. Size and mode are looked at before a pixel is decoded.

    `shape` is what it has to have, with None where that is not said; `kinds` are Pillow's names of what is read, `most` pixels.
    `convert` makes the channels that `shape` says of others, and keeps PNGs of 16 bits; else both are refused.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # sizes that Pillow warns of are refused below
            image = Image.open(io.BytesIO(data), formats=tuple(kinds))
        if image.width * image.height > most:
            raise DataError(f"{where} has {image.width} x {image.height} pixels, and {most:,} are allowed.")
        sixteen = convert and image.mode.startswith("I")
        if not convert and image.mode not in _CHANNELS:
            raise DataError(f"{where} is an image of mode {image.mode!r}; 8-bit grey, RGB and RGBA are read.")
        said = shape[-1] if shape is not None and convert else None
        seen = (image.height, image.width, 1 if sixteen else said or _CHANNELS.get(image.mode, 3))
        if shape is not None and any(due not in (None, found) for due, found in zip(shape, seen, strict=True)):
            raise DataError(f"{where}: the image has the shape {list(seen)}, where {list(shape)} is due.")
        if sixteen:
            return np.asarray(image).astype(np.uint16)[..., None]
        mode = _MODES.get(seen[2], "RGB")
        return np.asarray(image if image.mode == mode else image.convert(mode)).reshape(seen)
    except DataError:
        raise
    except Exception as error:  # Pillow's decoders raise anything, struct.error and SyntaxError among it
        why = "too large" if isinstance(error, Image.DecompressionBombError) else f"cut short, damaged or no {' or '.join(kinds)}"
        raise DataError(f"{where} cannot be read as an image: it is {why}.") from None


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
