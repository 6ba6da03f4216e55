"""Where an update's time goes, in a process of its own: see `workers.py`.

One update is recorded: the shapes and strides of its matrix products, forwards and backwards. The products are then done again on
their own, with operands that lie alike, and so are the draw of a batch and the optimisers' steps. What is left of the whole update
is element-wise work, autograd and Python.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from ours import open_dataset
from torch.utils._python_dispatch import TorchDispatchMode
from workers import serve

from d3ray.algos.optimizers import RowOptimizer
from d3ray.algos.registry import make_algorithm

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)
Operand = tuple[torch.Size, tuple[int, ...], torch.dtype]


class Products(TorchDispatchMode):
    """Keeps every matrix product that is done within: the operation and how its operands lie."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, list[Operand]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if function in PRODUCTS:
            self.done.append((function, [(a.shape, a.stride(), a.dtype) for a in arguments if isinstance(a, torch.Tensor)]))
        return function(*arguments, **(named or {}))


def flops(product: tuple[Any, list[Operand]]) -> int:
    """Multiplications and additions of a product."""
    *_, left, right = product[1]
    return 2 * left[0].numel() * right[0][-1]


def seconds(work: Callable[[], Any], device: str, repeat: int = 5, least: float = 0.15) -> float:
    """Median seconds of one call, over rounds of at least `least` seconds."""
    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    rounds, count = [], 1
    while len(rounds) < repeat:
        begin = time.perf_counter()
        for _ in range(count):
            work()
        wait()
        spent = time.perf_counter() - begin
        if spent < least:
            count = max(count + 1, int(count * min(10, 1.2 * least / max(spent, 1e-6))))
        else:
            rounds.append(spent / count)
    return statistics.median(rounds)


def operand(how: Operand, device: str) -> torch.Tensor:
    shape, stride, dtype = how
    reach = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    return torch.randn(reach, dtype=dtype, device=device).as_strided(shape, stride)


def spent(dataset: str, algorithm: dict[str, Any], device: str) -> dict[str, float]:
    """Seconds of one update, by what they are spent on, and its arithmetic.

    Returns:
        update, draw, products, optimizers: seconds. flop: operations of the products. large: operations a second that the machine
        reaches in one product of 2048 × 2048 matrices.
    """
    one = make_algorithm(algorithm, seed=0, device=device)
    data = open_dataset(dataset)
    one.fit(data, n_steps=20, n_steps_per_epoch=20)
    fit = one.fit_
    learner, sampler = fit.learner, fit.sampler(data)
    cycle = len({learner.algorithm.schedule(step) for step in range(64)})  # delayed updates: the mean over a whole cycle
    steps = itertools.count(learner.step)
    batches = [sampler.sample(learner.step + k) for k in range(cycle)]
    stepped: list[RowOptimizer] = []
    step_one = RowOptimizer.step

    def watched(optimizer: RowOptimizer, *arguments: Any) -> None:
        stepped.append(optimizer)
        step_one(optimizer, *arguments)

    with Products() as recorded, mock.patch.object(RowOptimizer, "step", watched):
        for batch in batches:
            learner.update(batch)
    operands = [(function, [operand(how, device) for how in products]) for function, products in recorded.done]
    due = [(optimizer, [torch.full_like(p, 1e-3) for p in optimizer.parameters]) for optimizer in stepped]

    def products() -> None:
        for function, arguments in operands:
            function(*arguments)

    def step() -> None:
        for optimizer, gradients in due:
            optimizer.step(gradients, 0)

    square = torch.randn(2048, 2048, device=device)
    return {
        "update": seconds(lambda: fit.update(sampler), device, least=0.4),
        "draw": seconds(lambda: sampler.sample(next(steps)), device),
        "products": seconds(products, device) / cycle,
        "optimizers": seconds(step, device) / cycle,
        "flop": sum(map(flops, recorded.done)) / cycle,
        "large": 2 * 2048**3 / seconds(lambda: square @ square, device),
    }


if __name__ == "__main__":
    serve({"spent": spent})
