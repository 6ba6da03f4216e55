"""Checks of batches that users hand in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from ...data.batch import Batch, Drawn, Sequences
from ...data.errors import DataError
from ...data.histories import Histories, steps_there
from ...data.masks import Masked, bare, mask_of, masked
from ...data.spec import Spec, value_columns
from ..wants import Opens, Stretches, Transitions, Wants

_OF_STEPS = ("mask", "timestep", "return_to_go")


def check_batch(batch: Drawn, spec: Spec, wants: Wants, name: str, *, remembers: bool = False) -> None:
    """Compares a batch with the spaces that were fitted and with what the algorithm looks at; waits for the device.

    Args:
        batch: What was handed in.
        spec: The spaces.
        wants: What the algorithm looks at.
        name: Of the algorithm.
        remembers: Whether it has a recurrent encoder, so that observations are `Histories`.

    Raises:
        DataError: the batch is empty, of the other kind or lacks something, a part has another shape, or a number is not finite.
            What an algorithm makes itself is its own affair.
    """
    if isinstance(wants, Opens):
        return
    stretches = isinstance(wants, Stretches)
    if stretches != isinstance(batch, Sequences):
        kind = "stretches of episodes (Sequences)" if stretches else "transitions (Batch)"
        raise DataError(f"{name} learns from {kind}, and was given a {type(batch).__name__}.")
    if remembers != (steps_there(batch.observation) is not None):
        kinds = ("single steps", "steps with what came before them (Histories, as a RecurrentSampler draws)")
        raise DataError(f"{name} learns from {kinds[remembers]}, and was given {kinds[not remembers]}.")
    if remembers and isinstance(batch, Batch):
        batch = batch.with_observations(*map(_steps, (batch.observation, batch.next_observation)))
    n = len(batch.index) if batch.index.ndim else 0
    if not n:
        raise DataError(f"The batch has no transitions: its index has the shape {tuple(batch.index.shape)}.")
    seen, parts = spec.shown(), dict(_tensors(batch))
    lead = tuple(batch.mask.shape) if isinstance(batch, Sequences) else (n,)
    shapes = {name: (*lead, *leaf.shape) for name, leaf in {**seen, "action": spec.action}.items()}
    shapes |= {f"next_{name}": shape for name, shape in shapes.items()}
    shapes |= {**dict.fromkeys(("reward", "discount", *_OF_STEPS), lead), **dict.fromkeys(("index", "weight"), (n,))}
    needed = [*seen, "action", "reward", "discount", *(f"extra/{name}" for name in wants.extra)]
    needed += [f"next_{name}" for name in seen] if wants.following else []
    needed += list(_OF_STEPS) if stretches else []
    if isinstance(wants, Transitions):
        needed += ["next_action"] if wants.next_action else []
        ahead = ("reward", "discount", "mask", *seen) if wants.ahead else ()  # see `Gather.following`
        needed += [f"extra/ahead/{name}" for name in ahead]
    if lacking := [name for name in needed if name not in parts]:
        raise DataError(f"The batch lacks {lacking[0]}; what was fitted takes {', '.join(needed)}.")
    for part, tensor in parts.items():
        if (found := tuple(tensor.shape)) != (wanted := shapes.get(part, (n, *found[1:]))):
            raise DataError(f"The batch's {part} has the shape {found}; what was fitted takes {wanted}.")
        bad = ~tensor.isfinite().reshape(len(tensor), -1).all(1)
        if bad.any():
            raise DataError(
                f"The batch's {part} is NaN or infinite in {int(bad.sum())} of {n} rows, first in row {int(bad.int().argmax())}."
            )


def _steps(observation: Any) -> Any:
    seen = bare(observation)
    return masked(seen.steps(), mask_of(observation)) if isinstance(seen, Histories) else observation


def _tensors(batch: Drawn) -> Iterator[tuple[str, Tensor]]:
    for field in fields(batch):
        value: Any = getattr(batch, field.name)
        if isinstance(value, Masked):
            yield from value_columns(value, field.name).items()
        elif isinstance(value, Mapping):
            yield from ((f"{field.name}/{key}", tensor) for key, tensor in value.items())
        elif value is not None:
            yield field.name, value
