"""What a batch must be that a user hands in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..data.batch import Batch
from ..data.errors import DataError
from ..data.spec import Spec, space_columns

if TYPE_CHECKING:
    from .definition import Definition


def check_batch(batch: Batch, spec: Spec, algorithm: Definition) -> None:
    """Compares a batch with the spaces that were fitted and with what the algorithm looks at; waits for the device.

    Raises:
        DataError: the batch is empty or lacks something, a part has another shape, or a number is NaN or infinite.
    """
    n = len(batch.index) if batch.index.ndim else 0
    if not n:
        raise DataError(f"The batch has no transitions: its index has the shape {tuple(batch.index.shape)}.")
    seen, parts = space_columns(spec.observation), dict(_tensors(batch))
    shapes = {name: (n, *leaf.shape) for name, leaf in {**seen, "action": spec.action}.items()}
    shapes |= {f"next_{name}": shape for name, shape in shapes.items()}
    shapes |= dict.fromkeys(("index", "reward", "discount", "weight"), (n,))
    needed = [*seen, "action", "reward", "discount", *(f"extra/{name}" for name in algorithm.extra_columns)]
    needed += [f"next_{name}" for name in seen] if algorithm.bootstraps else []
    needed += ["next_action"] if algorithm.needs_next_action else []
    if lacking := [name for name in needed if name not in parts]:
        raise DataError(f"The batch lacks {lacking[0]}; what was fitted takes {', '.join(needed)}.")
    for name, tensor in parts.items():
        if (found := tuple(tensor.shape)) != (wanted := shapes.get(name, (n, *found[1:]))):
            raise DataError(f"The batch's {name} has the shape {found}; what was fitted takes {wanted}.")
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
