"""Where columns lie, by what a process may still take of a device's memory; on GPUs that are pretended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from d3ray.data.dataset import Dataset
from d3ray.data.devices import find_device
from d3ray.data.errors import ConfigError
from d3ray.data.sampling import RETURNS, EpisodeSampler, EpochSampler, PrioritizedSampler, SequenceSampler, TransitionSampler
from d3ray.data.sampling.base import Sampler, columns_fit, free_memory

from ...stand_ins.cuda import GIB, TOO_OLD, Card, pretend
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


FULL = [Story(k, 3 + k, "terminated") for k in range(3)]
DATA = as_dataset(FULL)
NEEDED = sum(column.nbytes for column in DATA.columns.values())


@pytest.fixture(autouse=True)
def all_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def sampler(device: Any) -> Sampler:
    return Sampler(DATA, 8, 1, device, DATA.columns)


@pytest.mark.parametrize(
    ("device", "found"),
    [
        ("cuda", "cuda:1"),
        (torch.device("cuda"), "cuda:1"),
        ("cuda:0", "cuda:0"),
        ("cpu", "cpu"),
        ("cpu:0", "cpu:0"),
        ("meta", "meta"),
    ],
)
def test_a_device_has_the_index_of_its_tensors(device: Any, found: str) -> None:
    with pretend(Card(), Card()):
        torch.cuda.set_device(1)
        assert find_device(device) == torch.device(found)
        assert sampler(device).device == torch.device(found)


@pytest.mark.parametrize("device", ["cuda:2", torch.device("cuda", 2)])
def test_a_device_that_is_not_there_is_refused(device: Any) -> None:
    with pretend(Card(), Card()):
        for refuse in (find_device, sampler):
            with pytest.raises(ConfigError, match=r"^There is no device 'cuda:2' here: CUDA error: invalid device ordinal$"):
                refuse(device)
    with pretend(Card(), too_old=True), pytest.raises(ConfigError) as caught:
        sampler("cuda")
    assert str(caught.value).startswith(f"There is no device 'cuda' here: {TOO_OLD}")


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch is built with CUDA")
def test_a_build_without_cuda_says_so() -> None:
    with pytest.raises(ConfigError, match=r"^There is no device 'cuda' here: Torch not compiled with CUDA enabled$"):
        sampler("cuda")


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
@pytest.mark.parametrize(
    ("share", "others", "taken", "kept", "free"),
    [
        (1.0, 0, 0, 0, 100),
        (1.0, 30, 10, 0, 60),  # what nobody has
        (1.0, 30, 10, 5, 60),  # what is kept for later tensors is as good as free
        (0.25, 30, 0, 0, 25),  # no more than its share
        (0.25, 30, 10, 5, 15),
        (0.25, 90, 0, 0, 10),  # of which others left no more
    ],
)
def test_what_is_free_is_what_is_left_of_a_share(device: str, share: float, others: int, taken: int, kept: int, free: int) -> None:
    card = Card(total=100 * GIB, others=others * GIB)
    with pretend(card):
        torch.cuda.set_per_process_memory_fraction(share, 0)
        card.take(taken * GIB, reserve=kept * GIB)
        assert free_memory(torch.device(device)) == free * GIB
        assert free_memory(torch.device("cpu")) is free_memory(torch.device("meta")) is None


def test_four_trials_of_a_quarter_each_see_a_quarter_less_what_they_took() -> None:
    """Four processes on one GPU: what each takes the others see as taken, and it is not theirs to have anyway."""
    taken, total = [1 * GIB, 2 * GIB, 3 * GIB, 4 * GIB], 100 * GIB
    for mine in taken:
        card = Card(total=total, others=sum(taken) - mine)
        with pretend(card):
            torch.cuda.set_per_process_memory_fraction(0.25, torch.device("cuda:0"))
            card.take(mine)
            free, left = free_memory(find_device("cuda")), total // 4 - mine
            assert free == left
            assert (columns_fit(left // 2, free), columns_fit(left // 2 + 1, free)) == (True, False)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_columns_lie_on_a_gpu_where_they_fit_and_else_on_the_host(device: Any) -> None:
    index = torch.device(device).index or 0
    for left, place in ((2 * NEEDED, torch.device("cuda", index)), (2 * NEEDED - 1, torch.device("cpu"))):
        cards = [Card(others=100 * GIB), Card(others=100 * GIB)]  # the other one is full
        cards[index].others = 100 * GIB - left
        with pretend(*cards):
            made = sampler(device)
            assert (made.device, made.columns_device) == (torch.device("cuda", index), place)
            assert made._key.device == place


def test_a_small_share_keeps_columns_on_the_host_and_batches_come_to_the_gpu() -> None:
    card = Card(total=100 * GIB)
    with pretend(card):
        torch.cuda.set_per_process_memory_fraction(NEEDED / (100 * GIB), 0)
        for source in (DATA, as_buffer(FULL, 100).buffer):
            made = TransitionSampler(source, 8, device="cuda")
            assert (made.device, made.columns_device) == (torch.device("cuda:0"), torch.device("cpu"))
            assert made.sample(0).reward.device == made.device
