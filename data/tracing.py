"""Whether work is being traced into a program of tensors, which is run again later with other numbers in the same tensors.

A program has no host beside it: a value that Python reads while it is traced, or that NumPy works out, is a constant of it. So code
that takes a shortcut over the host asks `host_may_look` first, and takes the way of tensors where it may not.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]

Tracing = Literal["replayed", "compiled"]
_tracing: ContextVar[Tracing | None] = ContextVar("tracing", default=None)


def tracing() -> Tracing | None:
    """Tell what becomes of the work under way: "replayed" as it stands, "compiled", where kernels may be joined; None: nothing."""
    return _tracing.get()


@contextmanager
def traced(how: Tracing) -> Generator[None]:
    token = _tracing.set(how)
    try:
        yield
    finally:
        _tracing.reset(token)


def untraced() -> AbstractContextManager[Any]:
    """Record nothing inside: for what is made at first use and kept, which is state, and no part of the work under way."""
    return _disable_current_modes()


def host_may_look(tensor: Tensor) -> bool:
    """Tell whether reading a tensor's values waits for no device, and bakes nothing into a program."""
    return tensor.device.type == "cpu" and _tracing.get() is None
