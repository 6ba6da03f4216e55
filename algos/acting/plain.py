"""Numbers of whatever kind a caller has them in, as arrays that torch and onnxruntime take. Imports no torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data.errors import DataError, reason
from ...data.storage.checks import masked_entries


def plain_array(values: Any, what: str) -> np.ndarray:
    """Give numbers as an array in this machine's byte order, with steps forward through memory and no wider than 64 bits.

    Objects become the numbers that they are, float128 becomes float64, and unsigned integers beyond a byte signed ones; what is so
    already is given back as it is. `what` is what a message calls them, as "Observations". Raises DataError where they are no
    numbers, some are masked or missing, or rows differ in length.
    """
    array = _array(values, what)
    if isinstance(array, np.ma.MaskedArray):
        if found := masked_entries(array):
            raise DataError(
                f"{what} have {found}, and what is masked is no value: put numbers in their place with .filled(NUMBER)."
            )
        array = array.data
    if array.dtype.kind == "O":
        array = _numbers(array, what)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} are of the type {array.dtype}, which are no numbers: give floats or integers.")
    dtype = array.dtype.newbyteorder("=")
    if dtype.kind == "f" and dtype.itemsize > 8:
        dtype = np.dtype(np.float64)
    elif dtype.kind == "u" and dtype.itemsize > 1:  # torch computes with few of them
        fits = dtype.itemsize < 8 or not array.size or int(array.max()) <= np.iinfo(np.int64).max
        dtype = np.dtype(np.int64 if fits else np.float64)
    array = array.astype(dtype, copy=False)
    return array.copy(order="C") if any(step < 0 for step in array.strides) else array


def _array(values: Any, what: str) -> np.ndarray:
    try:
        if not isinstance(values, np.ndarray) and hasattr(values, "detach"):  # a tensor, of any device
            values = values.detach().cpu()
        return np.asanyarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{what} are no array of numbers: {reason(error)}.") from None


def _numbers(array: np.ndarray, what: str) -> np.ndarray:
    """Objects, among them arrays of one shape each, as numbers."""
    try:
        found = np.asarray(array.tolist())
        if found.dtype.kind == "O":  # as of Decimal and Fraction
            found = found.astype(np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        kinds = sorted({type(part).__name__ for part in array.reshape(-1)[:1000]})
        raise DataError(f"{what} hold objects ({', '.join(kinds[:4])}) that are no array of numbers: {reason(error)}.") from None
    return found
