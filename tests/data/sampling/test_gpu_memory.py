"""What a process may still take of a GPU's memory, and where a sampler puts its columns by it; on GPUs that are pretended."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from d3ray.data.devices import find_device
from d3ray.data.errors import ConfigError
from d3ray.data.sampling import TransitionSampler
from d3ray.data.sampling.base import Sampler, columns_fit, free_memory

from ...stand_ins.cuda import GIB, TOO_OLD, Card, pretend
from .slow_experience import Story, as_buffer, as_dataset

STORIES = [Story(k, 3 + k, "terminated") for k in range(3)]
DATA = as_dataset(STORIES)
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
        for source in (DATA, as_buffer(STORIES, 100).buffer):
            made = TransitionSampler(source, 8, device="cuda")
            assert (made.device, made.columns_device) == (torch.device("cuda:0"), torch.device("cpu"))
            assert made.sample(0).reward.device == made.device
