"""Images that a file holds as PNG or JPEG, one a step, as one array."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import DataError
from ..imported import Array

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's name for so many channels of 8 bits
_CHANNELS = {mode: channels for channels, mode in _MODES.items()}
_MOST_PIXELS = 1 << 26  # of one image whose size nobody announced


def is_encoded(data: bytes) -> bool:
    """Whether the bytes begin as PNG or JPEG does."""
    return data.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"))


def decode_images(images: Sequence[bytes], what: str, shape: Sequence[int | None] | None = None) -> Array:
    """[N, height, width, channels] uint8 (uint16 of PNGs with 16 bits): all of one size, which is looked at before pixels are made.

    Args:
        images: one or more, each PNG or JPEG.
        what: what an error calls them, as in "file: 'image'".
        shape: [height, width, channels] that they are said to have, entries None where it is not said.

    Raises:
        DataError: one is neither PNG nor JPEG, damaged, or of another size; its row is named.
    """
    out: Array | None = None
    for row, data in enumerate(images):
        pixels = _decode(data, f"{what}, row {row}", shape if out is None else out.shape[1:])
        if out is None:
            out = np.empty((len(images), *pixels.shape), pixels.dtype)
        if out.dtype != pixels.dtype:
            raise DataError(f"{what} has {pixels.dtype} pixels in row {row} and {out.dtype} in row 0.")
        out[row] = pixels
    if out is None:
        raise DataError(f"{what} has no images.")
    return out


def _decode(data: bytes, where: str, shape: Sequence[int | None] | None) -> Array:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            channels = None if shape is None else shape[-1]
            sixteen = image.mode.startswith("I")
            seen = (image.height, image.width, 1 if sixteen else channels or _CHANNELS.get(image.mode, 3))
            if shape is not None and any(said not in (None, found) for said, found in zip(shape, seen, strict=True)):
                raise DataError(f"{where}: the image has the shape {list(seen)}, where {list(shape)} is due.")
            if image.height * image.width > _MOST_PIXELS:
                raise DataError(f"{where}: the image has {image.height:,} × {image.width:,} pixels, more than is read unannounced.")
            if sixteen:
                return np.asarray(image).astype(np.uint16)[..., None]
            pixels: Any = np.asarray(image.convert(_MODES.get(seen[2], "RGB")))
    except (UnidentifiedImageError, Image.DecompressionBombError):
        raise DataError(f"{where} is neither a PNG nor a JPEG image.") from None
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{where}: the image is damaged ({error}).") from None
    return pixels.reshape(seen)
