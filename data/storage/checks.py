"""Checks of arrays with a row a step, without copies of them. A label is what a message calls an array, as "In FILE, rewards"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from ..errors import DataError

SMALLEST_SPREAD = 1e-3  # of an entry of observations that counts as one: what the scaler `standard` adds to it
CHUNK = 1 << 14  # rows looked at at once, so that a check of a large column needs little memory


def chunks(n: int, size: int = CHUNK) -> Iterator[slice]:
    """Cover `n` rows with slices of `size`."""
    return (slice(k, min(k + size, n)) for k in range(0, n, size))


def as_array(label: str, values: Any) -> np.ndarray:
    """Convert to an array, [N, ...]. Raises DataError of masked entries: what lies under a mask is no value."""
    if found := masked_entries(values):
        raise DataError(
            f"{label} has {found}, and what is masked is no value: leave such steps out, or put numbers in their place with "
            ".filled(NUMBER)."
        )
    return np.asarray(values)


def masked_entries(values: Any) -> str:
    """Say how many entries of a masked array, or of a list of such, are masked, and where the first is; empty where none is."""
    given: list[Any] = cast("list[Any]", values) if isinstance(values, list | tuple) else [values]
    if not any(isinstance(part, np.ma.MaskedArray) for part in given):
        return ""
    masks = [np.ma.getmaskarray(part) if isinstance(part, np.ma.MaskedArray) else np.zeros(1, bool) for part in given]
    if not (n := sum(int(mask.sum()) for mask in masks)):
        return ""
    rows = [mask.any() for mask in (masks if isinstance(values, list | tuple) else np.atleast_1d(masks[0]))]
    return f"{'1 masked entry' if n == 1 else f'{n} masked entries'}, first in row {rows.index(True)}"


def finite(label: str, column: np.ndarray, rows: np.ndarray | None = None, found: str = "") -> None:
    """Refuse NaN and infinity in a column [N, ...] of floats; the first row is named, as `rows` [N] numbers it for the user.

    `found` is what a number that is not finite is called; empty: NaN or an infinite number. Raises DataError.
    """
    if column.dtype.kind != "f":
        return
    for part in chunks(len(column)):
        bad = ~np.isfinite(column[part]).reshape(part.stop - part.start, -1).all(1)
        if bad.any():
            k = int(part.start + bad.argmax())
            kind = found or ("NaN" if np.isnan(column[k]).any() else "an infinite number")
            raise DataError(f"{label} has {kind} in row {k if rows is None else int(rows[k])}.")


def too_close(std: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return where numbers from `low` to `high` with a standard deviation `std` lie closer together than float32's spacing.

    Spreads below `SMALLEST_SPREAD` count as none.
    """
    with np.errstate(over="ignore"):
        step = np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(np.float32)).astype(np.float64)
    return (std > SMALLEST_SPREAD) & (std < step)


def resolved(label: str, column: np.ndarray) -> None:
    """Raises DataError where float64 numbers [N, ...] would lose their spread as float32; the first such entry is named.

    Only entries that are large in the first row can: of those, few, the spread is measured.
    """
    flat = column.reshape(len(column), -1)
    for k in np.flatnonzero(np.abs(flat[0]) > SMALLEST_SPREAD / np.finfo(np.float32).eps).tolist():
        std, low, high = flat[:, k].std(), flat[:, k].min(), flat[:, k].max()
        if too_close(std, low, high):
            entry = f", entry {k}," if flat.shape[1] > 1 else ""
            raise DataError(
                f"{label}{entry} reaches {max(abs(low), abs(high)):.6g} with a standard deviation of {std:.3g}, and float32 cannot "
                "tell numbers apart there: subtract an offset from them, or set keep_float64."
            )


def one_column(label: str, array: np.ndarray) -> np.ndarray:
    """Turn [N, 1] into [N]. Raises DataError for another shape."""
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{label} has shape {list(array.shape)}; one value a step is needed.")
    return array


def flags(label: str, array: np.ndarray) -> np.ndarray:
    """Convert flags of any type of number, [N] or [N, 1], to [N] bool. Raises DataError, which names row and value."""
    array = one_column(label, array)
    if array.dtype != np.bool_ and (wrong := (array != 0) & (array != 1)).any():
        k = int(wrong.argmax())
        raise DataError(f"{label} is {array[k]} in row {k}; flags are 0 or 1.")
    return array.astype(bool, copy=False)
