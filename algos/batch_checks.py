"""What a batch must be that a user hands in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from ..data.batch import Batch
from ..data.errors import DataError
from ..data.spec import Spec, space_columns


def check_batch(batch: Batch, spec: Spec) -> None:
    """Compares a batch with the spaces that were fitted; waits for the device.

    Raises:
        DataError: observations or actions have another shape, or a number is NaN or infinite.
    """
    n = len(batch.index)
    leaves = {**space_columns(spec.observation), "action": spec.action}
    wanted = leaves | {f"next_{name}": leaf for name, leaf in leaves.items()}
    for name, tensor in _tensors(batch):
        if name in wanted and tuple(tensor.shape) != (n, *wanted[name].shape):
            raise DataError(
                f"The batch's {name} has the shape {tuple(tensor.shape)}; what was fitted takes {(n, *wanted[name].shape)}."
            )
        bad = ~tensor.isfinite().reshape(len(tensor), -1).all(1)
        if bad.any():
            raise DataError(
                f"The batch's {name} is NaN or infinite in {int(bad.sum())} of {n} rows, first in row {int(bad.int().argmax())}."
            )


def _tensors(batch: Batch) -> Iterator[tuple[str, Tensor]]:
    """The parts of a batch by the names of their columns."""
    for field in fields(batch):
        value: Any = getattr(batch, field.name)
        if isinstance(value, Mapping):
            yield from ((f"{field.name}/{key}", tensor) for key, tensor in value.items())
        elif value is not None:
            yield field.name, value
