"""A stand-in for CUDA graphs that a CPU can run: what is captured is replayed on the same memory, and no Python runs again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from d3ray.algos.learning.recording import Call, Recording, is_view


class Replayed:
    """Operations that are run again: what they made is written where it was made."""

    def __init__(self, calls: list[Call]) -> None:
        self._calls = calls

    @torch.no_grad()
    def replay(self) -> None:
        for call in self._calls:
            if is_view(call.operation):
                continue
            found = call.operation(*call.arguments, **call.named)
            for old, new in zip(pytree.tree_leaves(call.found), pytree.tree_leaves(found), strict=True):
                if isinstance(old, Tensor) and old is not new and old.data_ptr() != new.data_ptr():
                    old.detach().copy_(new)


class GraphsOnHost:
    """Graphs, as `programs.CudaGraphs`. `captures` counts them."""

    def __init__(self) -> None:
        self.captures = 0

    def warm(self, work: Callable[[], None]) -> None:
        work()

    def capture(self, work: Callable[[], None]) -> Replayed:
        self.captures += 1
        with Recording() as recorded:
            work()
        recorded.undo()
        return Replayed(recorded.calls)
