"""Images that a file holds as PNG or JPEG, one a step, as one array."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

import numpy as np

from ...errors import DataError
from ..arrays import Array
from ..untrusted.unpacking import unpacks

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
