"""Mixed precision: while a loss is computed encoders may run in bfloat16, and all else stays as it is.

Parameters, heads, what losses do with their values, sums and optimisers are float32. So values of any size keep their digits, and
what is saved by bfloat16 is nearly all that there is: encoders have nearly all of the arithmetic.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_device: ContextVar[str | None] = ContextVar("mixed precision", default=None)


def lowered() -> str | None:
    """The type of the device where encoders run in bfloat16 now, or None."""
    return _device.get()


@contextmanager
def mixed_precision(device_type: str) -> Generator[None]:
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
