"""Batches that several processes share, each with its shard of the samples: what a loss takes over all of them.

In a process that trains alone, a batch is whole and these functions give back what they were given.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist


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


_current: ContextVar[Shard | None] = ContextVar("shard", default=None)


@contextmanager
def shard_under_way(shard: Shard) -> Generator[None]:
    """Within it losses see a shard of each batch."""
    token = _current.set(shard)
    try:
        yield
    finally:
        _current.reset(token)


def whole_batch(values: Tensor) -> Tensor:
    """Values of the whole batch [..., batch size] from those of this process's samples [..., B]; they have no gradient."""
    return values if (shard := _current.get()) is None else _gathered(values.detach(), shard)


def own_shard(values: Tensor) -> Tensor:
    """This process's samples [..., B] of values of the whole batch [..., batch size]."""
    return values if (shard := _current.get()) is None else shard.part(values)


def mean_of_shards(value: Tensor) -> Tensor:
    """The mean of what each process has, (); it has no gradient."""
    return value if (shard := _current.get()) is None else _gathered(value.detach()[None], shard).mean(-1)


def drawn_whole(shape: tuple[int, ...], draw: Callable[[tuple[int, ...]], Tensor]) -> Tensor:
    """Random numbers for this process's samples: those that they would have in the whole batch.

    The samples' axis is the first as long as the shard, else the first whose length is a multiple of it, where samples are
    repeated: there the numbers are the shard's own too, though not those of one process with the whole batch. What has no such
    axis is one draw for all samples.
    """
    shard = _current.get()
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
