"""Which GPU an algorithm trains on, by what is asked for and what is visible; on GPUs that are pretended."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from d3ray.algos.devices import Device, pick_device
from d3ray.data.errors import ConfigError

from ..stand_ins.cuda import TOO_OLD, Card, pretend

FOUR = [Card(name=f"card {number}") for number in range(4)]


@pytest.fixture(autouse=True)
def all_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)


@pytest.mark.parametrize(
    ("device", "picked"),
    [
        (None, "cuda:0"),
        (True, "cuda:0"),
        ("cuda", "cuda:0"),
        (torch.device("cuda"), "cuda:0"),
        ("cuda:1", "cuda:1"),
        (1, "cuda:1"),
        (2, "cuda:2"),
        (torch.device("cuda", 1), "cuda:1"),
        (Device(1), "cuda:1"),
        (0, "cuda:0"),
        (False, "cpu"),
        ("cpu", "cpu"),
        ("cpu:0", "cpu"),
    ],
)
def test_a_gpu_that_is_picked_has_its_index(device: Any, picked: str) -> None:
    with pretend(*FOUR):
        assert pick_device(device) == torch.device(picked)


@pytest.mark.parametrize("device", [None, True, "cuda"])
def test_one_that_the_process_has_chosen_is_kept_by_its_index(device: Any) -> None:
    with pretend(*FOUR):
        torch.cuda.set_device(2)
        picked = pick_device(device)
        torch.cuda.set_device(0)
        assert picked == torch.device("cuda:2")


@pytest.mark.parametrize("device", [4, "cuda:4", torch.device("cuda", 4), Device(4)])
def test_one_that_is_not_there_is_refused(device: Any) -> None:
    with pretend(*FOUR), pytest.raises(ConfigError) as caught:
        pick_device(device)
    assert str(caught.value) == f"There is no device {device!r} here: CUDA error: invalid device ordinal"


@pytest.mark.parametrize("number", range(4))
def test_a_trial_that_sees_one_gpu_of_four_picks_it_by_index_0(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(number))  # as Ray sets it for a trial of one GPU, or of a share of one
    with pretend(*FOUR):
        for device in (None, True, "cuda", 0):
            picked = pick_device(device)
            assert (picked, torch.cuda.get_device_name(picked)) == (torch.device("cuda:0"), f"card {number}")
        with pytest.raises(ConfigError, match=r"^There is no device 1 here: "):
            pick_device(1)


def test_numbers_count_what_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretend(*FOUR):
        assert torch.cuda.get_device_name(pick_device(2)) == "card 2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")  # a trial of two
    with pretend(*FOUR):
        assert [torch.cuda.get_device_name(pick_device(device)) for device in (None, 0, 1)] == ["card 3", "card 3", "card 1"]


def test_where_none_is_visible_the_cpu_is_taken_and_a_gpu_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as Ray sets it for a trial without a GPU
    with pretend(*FOUR):
        assert pick_device(None) == torch.device("cpu")
        with pytest.raises(ConfigError, match=r"^There is no device True here: torch finds no accelerator\.$"):
            pick_device(True)
        with pytest.raises(ConfigError, match=r"^There is no device 'cuda' here: No CUDA GPUs are available$"):
            pick_device("cuda")


@pytest.mark.parametrize("device", ["cuda", 0])
def test_an_old_driver_is_named(device: Any) -> None:
    with pretend(*FOUR, too_old=True), pytest.raises(ConfigError) as caught:
        pick_device(device)
    assert str(caught.value) == f"There is no device {device!r} here: {TOO_OLD}"


def test_a_driver_that_counts_more_than_it_can_begin_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    with pretend(*FOUR, too_old=True), pytest.raises(ConfigError) as caught:
        pick_device(None)
    assert str(caught.value) == f"There is no device 'cuda' here: {TOO_OLD}"
