"""GPUs that are not there: torch's own functions over a driver that is pretended, so that they refuse what they refuse on a GPU.

What is replaced is what torch asks of CUDA in C, and the driver's own library; what `torch.cuda` and `torch.accelerator` check in
Python they check here too. A tensor made there knows its device, shape and type, and has no numbers: it can be copied and
calculated with, and neither be indexed nor read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo.device_interface  # pyright: ignore[reportUnusedImport]  # later it would take what is pretended for a build
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

GIB = 2**30
TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading"


@dataclass
class Card:
    """A GPU, and what this process has of its memory: bytes."""

    name: str = "Pretended H200"
    major: int = 9  # of what it can do
    minor: int = 0
    total: int = 100 * GIB
    others: int = 0  # taken by other processes
    allocated: int = 0
    reserved: int = 0
    peak: int = 0  # of what was reserved
    fraction: float = 1.0
    use: int = 0  # percent

    def take(self, n_bytes: int, reserve: int = 0) -> None:
        """Allocates for tensors of this process, within its share; `reserve` bytes more are kept for later ones."""
        if self.reserved + n_bytes + reserve > self.fraction * self.total:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self.allocated, self.reserved = self.allocated + n_bytes, self.reserved + n_bytes + reserve
        self.peak = max(self.peak, self.reserved)

    @property
    def stats(self) -> dict[str, Any]:
        """As torch's allocator tells them."""
        return {
            "allocated_bytes": {"all": {"current": self.allocated, "peak": self.allocated}},
            "reserved_bytes": {"all": {"current": self.reserved, "peak": self.peak}},
        }


@dataclass
class Cards:
    """The GPUs of a machine, of which a process sees those that CUDA_VISIBLE_DEVICES names when it begins to use them.

    Attributes:
        every: All of the machine's, as its driver numbers them.
        too_old: Whether the driver counts them and torch cannot use them.
        current: The index of the one that the process uses where none is named.
        begun: Whether CUDA was initialised.
    """

    every: Sequence[Card]
    too_old: bool = False
    current: int = 0
    begun: bool = False
    _seen: list[Card] | None = field(default=None, repr=False)

    @property
    def visible(self) -> list[Card]:
        """Those that the process sees, by their index there."""
        return self._named() if self._seen is None else self._seen

    def _named(self) -> list[Card]:
        found: list[Card] = []
        for number in torch.cuda._parse_visible_devices():
            if int(number) >= len(self.every):
                break
            found.append(self.every[int(number)])
        return found

    def begin(self) -> None:
        """What `torch._C._cuda_init` does."""
        if self.too_old:
            raise RuntimeError(TOO_OLD)
        if not self.visible:
            raise RuntimeError("No CUDA GPUs are available")
        self._seen, self.begun = self.visible, True

    def of_allocator(self, index: int) -> Card:
        """A card that the allocator knows."""
        if not self.begun or not 0 <= index < len(self.visible):
            raise RuntimeError(f"Invalid device argument {index}: did you call init?")
        return self.visible[index]

    def of_runtime(self, index: int) -> Card:
        """A card that CUDA knows."""
        if not 0 <= index < len(self.visible):
            raise torch.AcceleratorError("CUDA error: invalid device ordinal")
        return self.visible[index]

    def free(self, index: int) -> tuple[int, int]:
        """What `cudaMemGetInfo` tells."""
        card = self.of_runtime(index)
        return card.total - card.others - card.reserved, card.total

    def choose(self, index: int) -> int:
        """Makes another card the current one, and tells which it was."""
        self.of_runtime(index)
        self.current, before = index, self.current
        return before


class _Made(TorchFunctionMode):
    """Makes tensors on pretended cards, of shape and type only."""

    def __init__(self, cards: Cards) -> None:
        super().__init__()
        self._cards, self._fake = cards, FakeTensorMode(allow_non_fake_inputs=True)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        moved = func is torch.Tensor.to and len(args) > 1 and isinstance(args[1], torch.device | str)
        named = args[1] if moved else kwargs.get("device")
        device = None if named is None else torch.device(named)
        if device is None or device.type != "cuda":
            return func(*args, **kwargs)
        torch.cuda.init()
        device = torch.device("cuda", device.index if ":" in str(device) else self._cards.current)  # C would ask CUDA
        self._cards.of_runtime(device.index)
        if func in (torch.tensor, torch.as_tensor):  # these copy in C what they have made on the host
            func, moved, args = torch.Tensor.to, True, (func(*args, **{**kwargs, "device": "cpu"}), device)
            kwargs = {}
        with self._fake:
            rest = [self._fake.from_tensor(x) if isinstance(x, torch.Tensor) and not isinstance(x, FakeTensor) else x for x in args]
            return func(rest[0], device, *rest[2:], **kwargs) if moved else func(*rest, **{**kwargs, "device": device})


@contextmanager
def pretend(*cards: Card, too_old: bool = False) -> Generator[Cards]:
    """Within it this process is one of a build with CUDA, on a machine with some cards.

    Args:
        *cards: All of the machine's; which of them are seen CUDA_VISIBLE_DEVICES says.
        too_old: Whether their driver is too old for this torch, so that it counts them and CUDA does not begin.
    """
    there = Cards(cards, too_old)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _in_c(there).items():
            patch.setattr(torch._C, name, value, raising=False)
        for name, value in _in_torch(there).items():
            patch.setattr(torch.cuda, name, value, raising=False)
        patch.setattr(torch.version, "cuda", "13.0")
        pynvml = ModuleType("pynvml")
        pynvml.NVMLError_DriverNotLoaded = RuntimeError  # pyright: ignore[reportAttributeAccessIssue]
        patch.setitem(sys.modules, "pynvml", pynvml)
        with _Made(there):
            yield there


def _in_c(cards: Cards) -> dict[str, Any]:
    """What stands in the place of the C part of torch."""

    def reset_peak(index: int) -> None:
        card = cards.of_allocator(index)
        card.peak = card.reserved

    def set_fraction(fraction: float, index: int) -> None:
        cards.of_allocator(index).fraction = fraction

    def current() -> int:
        torch.cuda.init()
        return cards.current

    return {
        "_cuda_init": cards.begin,
        "_cuda_getDeviceCount": lambda: 0 if cards.too_old else len(cards.visible),
        "_cuda_getDevice": lambda: cards.current,
        "_cuda_setDevice": cards.choose,
        "_cuda_exchangeDevice": cards.choose,
        "_cuda_setMemoryFraction": set_fraction,
        "_cuda_getMemoryFraction": lambda index: cards.of_allocator(index).fraction,
        "_cuda_memoryStats": lambda index: cards.of_allocator(index).stats,
        "_cuda_resetPeakMemoryStats": reset_peak,
        "_cuda_emptyCache": lambda: None,
        "_accelerator_getAccelerator": lambda: torch.device("cuda"),
        "_accelerator_getDeviceIndex": current,
    }


def _in_torch(cards: Cards) -> dict[str, Any]:
    """What stands in the place of torch's state, of what it learns when CUDA begins, and of the driver's library."""
    library = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda number: cards.every[number],
        nvmlDeviceGetUtilizationRates=lambda card: SimpleNamespace(gpu=card.use),
    )
    return {
        "_initialized": False,
        "_queued_calls": [],
        "_lazy_seed_tracker": type(torch.cuda._lazy_seed_tracker)(),  # seeds that wait for the first use are not for these
        "_cached_device_count": None,
        "_cudart": SimpleNamespace(cudaMemGetInfo=cards.free),
        "_get_device_properties": cards.of_runtime,
        "_raw_device_count_nvml": lambda: len(cards.every),
        "_HAS_PYNVML": True,
        "pynvml": library,
    }
