"""The pretended GPUs refuse what real ones refuse: the same calls on both, and on the pretended ones alone where there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from .cuda import GIB, TOO_OLD, Card, pretend

CALLS: dict[str, Callable[[Any], Any]] = {
    "get_per_process_memory_fraction": torch.cuda.get_per_process_memory_fraction,
    "set_per_process_memory_fraction": lambda device: torch.cuda.set_per_process_memory_fraction(1.0, device),
    "mem_get_info": torch.cuda.mem_get_info,
    "memory_allocated": torch.cuda.memory_allocated,
    "memory_reserved": torch.cuda.memory_reserved,
    "max_memory_reserved": torch.cuda.max_memory_reserved,
    "reset_peak_memory_stats": torch.cuda.reset_peak_memory_stats,
    "get_device_name": torch.cuda.get_device_name,
    "empty": lambda device: torch.empty(0, device=device),
}
STRICT = ("get_per_process_memory_fraction", "set_per_process_memory_fraction")  # these want an index
BEYOND = 99


def refused(call: Callable[[Any], Any], device: Any) -> str | None:
    """The kind of error that a call ends in; None: it does not."""
    try:
        call(device)
    except (AssertionError, ValueError, TypeError) as error:
        return type(error).__name__
    except RuntimeError:  # of CUDA or of its allocator
        return "RuntimeError"
    return None


def outcomes() -> dict[tuple[str, str], str | None]:
    """What each call makes of each way to name a device."""
    torch.empty(0, device="cuda")
    named: list[Any] = ["cuda", torch.device("cuda"), "cuda:0", torch.device("cuda", 0), 0, None, f"cuda:{BEYOND}", BEYOND]
    found = {(name, repr(device)): refused(call, device) for name, call in CALLS.items() for device in named}
    found |= {("fraction", repr(share)): refused(_share(share), 0) for share in (-0.1, 0, 0.0, 0.25, 1, 1.0, 1.5)}
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    return found


def _share(share: float) -> Callable[[Any], Any]:
    return lambda device: torch.cuda.set_per_process_memory_fraction(share, device)


def test_it_refuses_what_torch_refuses() -> None:
    with pretend(Card()):
        found = outcomes()
    for name in CALLS:
        for device in ("'cuda'", "device(type='cuda')"):
            assert found[name, device] == ("ValueError" if name in STRICT else None)
        for device in ("'cuda:0'", "device(type='cuda', index=0)"):
            assert found[name, device] is None
        assert found[name, f"'cuda:{BEYOND}'"] is not None
    shares = {share: kind for (name, share), kind in found.items() if name == "fraction"}
    wrong = {"-0.1": "ValueError", "1.5": "ValueError", "0": "TypeError", "1": "TypeError"}
    assert shares == {"0.0": None, "0.25": None, "1.0": None} | wrong


@pytest.mark.gpu
def test_it_refuses_what_a_gpu_refuses() -> None:
    there = outcomes()
    with pretend(Card()):
        here = outcomes()
    assert here == there


def test_a_process_sees_what_is_visible_when_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    with pretend(*(Card(name=str(k)) for k in range(4))):
        assert (torch.cuda.is_initialized(), torch.cuda.device_count()) == (False, 2)
        assert [torch.cuda.get_device_name(k) for k in range(2)] == ["2", "0"]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert torch.cuda.device_count() == torch.accelerator.device_count() == 2
    with pretend(Card()):
        assert not torch.cuda.is_available()
        with pytest.raises(RuntimeError, match="No CUDA GPUs are available"):
            torch.cuda.init()


def test_under_a_driver_that_is_too_old_cards_are_counted_and_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pretend(Card(), Card(), too_old=True):
        assert (torch.cuda.is_available(), torch.cuda.device_count()) == (False, 2)
        with pytest.raises(RuntimeError, match=TOO_OLD.partition(" (")[0]):
            torch.cuda.get_device_name(0)


def test_memory_is_counted_and_kept_to_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    card = Card(total=10 * GIB, others=GIB)
    with pretend(Card(), card):
        torch.cuda.set_per_process_memory_fraction(0.5, 1)
        card.take(GIB, reserve=2 * GIB)
        with pytest.raises(torch.OutOfMemoryError):
            card.take(3 * GIB)
        assert torch.cuda.mem_get_info(1) == (6 * GIB, 10 * GIB)
        assert (torch.cuda.memory_allocated(1), torch.cuda.memory_reserved(1), torch.cuda.memory_reserved(0)) == (GIB, 3 * GIB, 0)


def test_tensors_made_there_know_where_they_are() -> None:
    with pretend(Card(), Card()):
        for device in ("cuda", "cuda:1"):
            made = torch.from_numpy(np.zeros((2, 3))).to(device)
            assert (made.device, (made + 1).shape) == (torch.device("cuda", 1 if device == "cuda:1" else 0), (2, 3))
        torch.cuda.set_device(1)
        assert torch.empty(0, device="cuda").device == torch.device("cuda:1")
    assert (torch.zeros(3) + 1).sum() == 3
    assert not hasattr(torch._C, "_cuda_init") or torch.cuda.is_available()
