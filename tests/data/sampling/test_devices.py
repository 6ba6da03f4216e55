"""Where columns lie, by the memory that is free there, and what a draw reads of a device: nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from d3ray.data.dataset import Dataset
from d3ray.data.sampling import RETURNS, EpisodeSampler, EpochSampler, PrioritizedSampler, SequenceSampler, TransitionSampler
from d3ray.data.sampling.base import Sampler, columns_fit

from .slow_experience import Story, as_buffer, as_dataset

STORIES = [Story(k, 3 + k, end) for k, end in enumerate(("terminated", "truncated", "blind", "terminated"))]
MAKERS: dict[str, Callable[..., Sampler]] = {
    "transitions": lambda source, **more: TransitionSampler(source, 8, 1, **more),
    "n steps, stacked": lambda source, **more: TransitionSampler(source, 8, (1, 2), td_steps=3, extra=(RETURNS,), **more),
    "ahead": lambda source, **more: TransitionSampler(source, 8, 1, ahead=2, **more),
    "prioritized": lambda source, **more: PrioritizedSampler(source, 8, 1, **more),
    "sequences": lambda source, **more: SequenceSampler(source, 8, 3, 1, **more),
    "episodes": lambda source, **more: EpisodeSampler(source, 8, 1, max_length=3, **more),
}


@pytest.mark.parametrize(
    ("n_bytes", "free", "fit"), [(100, 200, True), (101, 200, False), (0, 0, True), (1, 0, False), (10**15, None, True)]
)
def test_columns_take_half_of_what_is_free(n_bytes: int, free: int | None, fit: bool) -> None:
    assert columns_fit(n_bytes, free) is fit


def as_arrays(batch: Any) -> list[np.ndarray]:
    return [np.asarray(part) for part in pytree.tree_leaves(batch) if isinstance(part, torch.Tensor)]


@pytest.mark.parametrize("kind", [*MAKERS, "epochs"])
def test_what_does_not_fit_is_gathered_on_the_host_and_moved(kind: str) -> None:
    data: Dataset = as_dataset(STORIES)
    make = MAKERS.get(kind) or (lambda source, **more: EpochSampler(source, 8, 1, **more))
    asked: list[torch.device] = []

    def full(device: torch.device) -> int:
        asked.append(device)
        return 10

    there = make(data, device="meta", free_memory=full)
    assert (asked, there.columns_device) == ([torch.device("meta")], torch.device("cpu"))
    plain, here = make(data), make(data, device="cpu:0", free_memory=full)  # another device by its name, with numbers in it
    for step in (0, 1, 130):
        batch, wanted = there.sample(step), plain.sample(step)  # pyright: ignore[reportAttributeAccessIssue]
        assert {part.device.type for part in pytree.tree_leaves(batch) if isinstance(part, torch.Tensor)} == {"meta"}
        assert batch.reward.shape == wanted.reward.shape
        got = here.sample(step)  # pyright: ignore[reportAttributeAccessIssue]
        assert all(map(np.array_equal, as_arrays(got), as_arrays(wanted)))


def test_what_fits_is_copied_and_a_buffer_never_is() -> None:
    needed = sum(column.nbytes for name, column in as_dataset(STORIES).columns.items() if name not in ("truncated", "closing"))
    for free, place in ((2 * needed, "cpu:0"), (2 * needed - 1, "cpu"), (None, "cpu:0")):
        sampler = TransitionSampler(as_dataset(STORIES), 8, device="cpu:0", free_memory=lambda device, free=free: free)
        assert sampler.columns_device == torch.device(place)

    def asked(device: torch.device) -> int:
        raise AssertionError(device)

    buffer = as_buffer(STORIES, 100).buffer
    assert TransitionSampler(buffer, 8, device="meta", free_memory=asked).columns_device == torch.device("cpu")
    assert TransitionSampler(as_dataset(STORIES), 8, free_memory=asked).columns_device == torch.device("cpu")


class Elsewhere(torch.Tensor):
    """Numbers on a device, which count how often they are read from the host."""

    value: torch.Tensor
    reads: int

    @staticmethod
    def __new__(cls, value: torch.Tensor) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, value.shape, dtype=value.dtype, device="meta")
        made.value, made.reads = value, 0
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default:
            args[0].reads += 1
            return args[0].value.clone()
        if func is torch.ops.aten.fill_.Scalar:
            args[0].value.fill_(args[1])
            return args[0]
        raise AssertionError(func)


@pytest.mark.parametrize("kind", ["transitions", "prioritized", "sequences", "episodes"])
@pytest.mark.parametrize("grows", [True, False])
def test_a_draw_on_the_host_reads_gamma_only_after_it_was_written(kind: str, grows: bool) -> None:
    source: Any = as_buffer(STORIES, 100).buffer if grows else as_dataset(STORIES)
    gamma: Any = Elsewhere(torch.tensor(0.9))
    sampler: Any = MAKERS[kind](source, device="cpu:0", gamma=gamma, free_memory=lambda device: 0)
    for step in range(300):
        batch = sampler.sample(step)
    assert gamma.reads == 1
    gamma.fill_(0.5)
    assert set(batch.discount.unique().tolist()) <= {0.0, torch.tensor(0.9).item()}
    for step in range(3):
        batch = sampler.sample(step)
        assert set(batch.discount.unique().tolist()) <= {0.0, 0.5}
    assert gamma.reads == 2
