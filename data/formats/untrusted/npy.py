"""Arrays as NumPy's `.npy` has them, out of streams of unpacked bytes."""

from __future__ import annotations

import math
from typing import IO, Any

import numpy as np

from ...errors import DataError
from ..arrays import Array
from .unpacking import needs


def npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it lies by columns, and dtype; the stream is at the first value then."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(stream)


def read_npy(stream: IO[bytes], source: str, size: int | None = None) -> Array:
    """An array of numbers from a stream that holds the whole of it, `size` bytes where that is known.

    Raises:
        ValueError: it is no array, or cut short.
    """
    shape, fortran, dtype = npy_header(stream)
    if dtype.hasobject:
        raise DataError(f"{source} holds Python objects, which are never loaded; save it as an array of numbers.")
    if dtype.kind not in "biuf":
        raise DataError(f"{source} holds {dtype}, not numbers.")
    n_bytes = math.prod(shape) * dtype.itemsize
    if size is not None and n_bytes > size:
        raise DataError(f"{source} is said to be {dtype} of shape {list(shape)}, {n_bytes:,} bytes, and has {size:,}.")
    needs(source, n_bytes)  # whatever the stream is, which counts what comes out of it
    values = np.empty(math.prod(shape), dtype)
    if stream.readinto(values.view(np.uint8)) != n_bytes:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError("it ends before its last value")
    return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)
