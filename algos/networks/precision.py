"""What products are computed in while an algorithm trains; parameters, what losses do with values, sums and optimisers are float32.

Encoders may run in bfloat16 while a loss is computed: values of any size keep their digits, and what is saved by bfloat16 is nearly
all that there is, for encoders have nearly all of the arithmetic. Or a GPU may multiply float32 as TensorFloat-32: it takes the
first 10 bits of each mantissa, and adds up in float32.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_device: ContextVar[str | None] = ContextVar("encoders in bfloat16", default=None)


def lowered() -> str | None:
    """The type of the device where encoders run in bfloat16 now, or None."""
    return _device.get()


@contextmanager
def encoders_in_bfloat16(device_type: str) -> Generator[None]:
    """Encoders called inside run in bfloat16."""
    token = _device.set(device_type)
    try:
        yield
    finally:
        _device.reset(token)


def autocast(device_type: str, *, enabled: bool = True) -> torch.autocast:
    """Products and convolutions inside are in bfloat16, or as ever. A weight is used once, so none is kept converted.

    Where there are no values ("meta") nothing changes.
    """
    there = device_type if torch.amp.is_autocast_available(device_type) else "cpu"
    return torch.autocast(there, torch.bfloat16, enabled, cache_enabled=False)


def has_tensor_float(device: torch.device) -> bool:
    """Whether a device multiplies in TensorFloat-32, as NVIDIA's GPUs do from Ampere on."""
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


@contextmanager
def products_in_tensor_float() -> Generator[None]:
    """Products and convolutions of float32 that GPUs of this process do inside may be in TensorFloat-32, in every thread.

    Afterwards they are as before.
    """
    kinds = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # pyright: ignore[reportAttributeAccessIssue]
    changed = [(kind, kind.fp32_precision) for kind in kinds if kind.fp32_precision != "tf32"]
    for kind, _ in changed:
        kind.fp32_precision = "tf32"
    try:
        yield
    finally:
        for kind, before in changed:
            kind.fp32_precision = before
