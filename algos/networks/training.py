"""The context of layers while a loss is computed: draws, batch statistics, precision, shards.

There are no `.train()` and `.eval()` flags: a layer is training exactly while the learner computes a loss with a live network.
A policy that acts and an export see the same layers at rest, and so does a target network, but for layers that draw there too
(they have `draws = True`; the fractions of an implicit quantile network are drawn for both).

Encoders may run in bfloat16 while a loss is computed: values of any size keep their digits, and what is saved by bfloat16 is nearly
all that there is, for encoders have nearly all of the arithmetic. Or a GPU may multiply float32 as TensorFloat-32: it takes the
first 10 bits of each mantissa, and adds up in float32. Parameters, losses, sums and optimisers are float32 in either.

Processes that train together have a shard of each batch. In a process that trains alone `whole_batch` and its like give back what
they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from ...data.random import fold, normal, uniform

Drawn = TypeVar("Drawn")
Value = TypeVar("Value")


@contextmanager
def _set(variable: ContextVar[Value], value: Value) -> Generator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


# ---- passes of networks


@dataclass
class Pass:
    """One pass of one network inside a loss."""

    key: Tensor  # int64 (), the address of this pass
    dtype: torch.dtype
    training: bool  # False: layers are at rest, as a target network's, and a live one's where a loss is only read
    statistics: dict[str, Tensor] | None  # where batch norm leaves its new running statistics; None: not kept
    target: bool = False  # whether the network is a target
    draws: int = field(default=0)
    _drawn: dict[int, Any] = field(default_factory=dict)  # by layer, see `once`

    def uniform(self, shape: tuple[int, ...], name: str | None = None) -> Tensor:
        """Uniform draws for samples at the address `name` of this pass; without one, at their position among those without."""
        address = self._address(name)
        return drawn_whole(shape, lambda whole: uniform(address, whole, self.dtype))

    def normal(self, shape: tuple[int, ...], name: str | None = None) -> Tensor:
        """Standard normal draws for weights, which all samples see, addressed in the same way."""
        return normal(self._address(name), shape, self.dtype)

    def once(self, layer: object, draw: Callable[[], Drawn]) -> Drawn:
        """Gives what a layer drew at its first call in this pass: it has the same weights wherever it is asked in it."""
        if id(layer) not in self._drawn:
            self._drawn[id(layer)] = draw()
        return self._drawn[id(layer)]

    def _address(self, name: str | None) -> Tensor:
        if name is None:
            self.draws += 1
        return fold(self.key, self.draws if name is None else name)


@dataclass
class Numbers:
    """Standard normal numbers that a policy was handed for its draws, [B, n]: layers take their shares in the order of calls."""

    numbers: Tensor
    taken: int = 0

    def take(self, n: int) -> Tensor:
        """The next n of each sample, [B, n]."""
        self.taken += n
        return self.numbers[:, self.taken - n : self.taken]


_numbers: ContextVar[Numbers | None] = ContextVar("numbers", default=None)
_current: ContextVar[Pass | None] = ContextVar("pass", default=None)


def current_training() -> Pass | None:
    """The live network's pass under way, or None when layers are at rest."""
    now = _current.get()
    return now if now is not None and now.training else None


def current_draws() -> Pass | None:
    """The pass under way, a target network's too; None outside a loss, where nothing is drawn."""
    return _current.get()


def current_numbers() -> Numbers | None:
    return _numbers.get()


def drawing_by(numbers: Tensor) -> AbstractContextManager[None]:
    """Layers called inside draw by these, [B, n]."""
    return _set(_numbers, Numbers(numbers))


def under_way(now: Pass | None) -> AbstractContextManager[None]:
    return _set(_current, now)


# ---- precision

_lowered: ContextVar[str | None] = ContextVar("encoders in bfloat16", default=None)


def lowered() -> str | None:
    return _lowered.get()


def encoders_in_bfloat16(device_type: str) -> AbstractContextManager[None]:
    return _set(_lowered, device_type)


def autocast(device_type: str, *, enabled: bool = True) -> torch.autocast:
    """Products and convolutions inside are in bfloat16, or as ever. A weight is used once, so none is kept converted.

    Where there are no values ("meta") nothing changes.
    """
    there = device_type if torch.amp.is_autocast_available(device_type) else "cpu"
    return torch.autocast(there, torch.bfloat16, enabled, cache_enabled=False)


def has_tensor_float(device: torch.device) -> bool:
    """Tells whether a device multiplies in TensorFloat-32, as NVIDIA's GPUs do from Ampere on."""
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


# ---- shards of a batch


@dataclass(frozen=True)
class Shard:
    """A process's part of a batch: `rows` samples, those from `rank · rows` on, of `size · rows`."""

    rank: int
    size: int
    rows: int

    def part(self, values: Tensor, axis: int = -1) -> Tensor:
        """This process's part of something that has all samples along an axis."""
        n = values.shape[axis] // self.size
        return values.narrow(axis, self.rank * n, n)

    def gather(self, values: Tensor) -> Tensor:
        """All processes' values [..., n], one after another along the last axis. All of them call it, with equal shapes."""
        values = values.contiguous()
        parts = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(parts, values)
        return torch.cat(parts, -1)


_shard: ContextVar[Shard | None] = ContextVar("shard", default=None)


def shard_under_way(shard: Shard) -> AbstractContextManager[None]:
    return _set(_shard, shard)


def whole_batch(values: Tensor) -> Tensor:
    """Values of the whole batch [..., batch size] from those of this process's samples [..., B]; they have no gradient."""
    return values if (shard := _shard.get()) is None else _gathered(values.detach(), shard)


def own_shard(values: Tensor) -> Tensor:
    """This process's samples [..., B] of values of the whole batch [..., batch size]."""
    return values if (shard := _shard.get()) is None else shard.part(values)


def mean_of_shards(value: Tensor) -> Tensor:
    """The mean of what each process has, (); it has no gradient."""
    return value if (shard := _shard.get()) is None else _gathered(value.detach()[None], shard).mean(-1)


def drawn_whole(shape: tuple[int, ...], draw: Callable[[tuple[int, ...]], Tensor]) -> Tensor:
    """Random numbers of `shape` for this process's samples: those that they have in the whole batch, which `draw` makes.

    The samples' axis is the first as long as the shard, else the first whose length is a multiple of it, where samples are
    repeated: there the numbers are the shard's own too, though not those of one process with the whole batch. What has no such
    axis is one draw for all samples.
    """
    shard = _shard.get()
    if shard is None:
        return draw(shape)
    axis = next((k for k, n in enumerate(shape) if n == shard.rows), None)
    if axis is None:
        axis = next((k for k, n in enumerate(shape) if n and n % shard.rows == 0), None)
    if axis is None:
        return draw(shape)
    return shard.part(draw((*shape[:axis], shape[axis] * shard.size, *shape[axis + 1 :])), axis)


def _gathered(values: Tensor, shard: Shard) -> Tensor:
    return _Gathered.apply(values, shard)  # pyright: ignore[reportReturnType]


class _Gathered(torch.autograd.Function):
    """`Shard.gather` where a stack's losses run under vmap, which knows no collective operation."""

    @staticmethod
    def forward(values: Tensor, shard: Shard) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return shard.gather(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, values: Tensor, shard: Shard) -> tuple[Tensor, int]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows = values if in_dims[0] is None else values.movedim(in_dims[0], 0)
        found = _gathered(rows, shard)
        return (found.expand(info.batch_size, *found.shape) if in_dims[0] is None else found), 0
