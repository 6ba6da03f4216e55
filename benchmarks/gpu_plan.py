"""What a suite would take on one accelerator, on paper: counted work of every algorithm's update, and assumed times for it.

    python benchmarks/gpu_plan.py [--suite paper-table-2] [--processes 8]

What is counted: operations that an update of a stack of the suite's seeds starts on the device (eager PyTorch, views left out),
and their floating-point operations, on data with the shapes of HalfCheetah and Walker2d, averaged over updates, for some are due
every second step only. What is assumed stands in ASSUMED and in the table; `d3ray benchmark SUITE --plan` on the machine itself
measures instead. The result goes to `benchmarks/results/gpu_plan.md`.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from tasks import walker_like
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from workers import HERE, table

from d3ray.algos.stack import Stack
from d3ray.data.dataset import Dataset
from d3ray.platform.benchmark.suite import Cell, SuiteConfig
from d3ray.platform.settings.config import AlgorithmChoice

ASSUMED = {
    "host": (10e-6, "s that the host needs to start an operation, autograd, vmap and Python included"),
    "kernel": (3e-6, "s that an operation takes on the device at least"),
    "float32": (20e12, "floating-point operations/s in matrix products of these sizes (a third of an H100's or H200's best)"),
    "bfloat16": (200e12, "the same in bfloat16, which `matmul_precision=bfloat16` uses (a fifth of their best)"),
    "evaluation": (1.0, "s of the host for an evaluation of one seed: ten episodes of at most 1,000 steps, ten at a time"),
}
KINDS = ("float32", "bfloat16")
UPDATES = 4  # that are counted: delayed updates are every second


class Operations(TorchDispatchMode):
    """Counts what starts work on a device: operations that are no views and allocate nothing only."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self.count += not (function.is_view or "empty" in function.name() or "detach" in function.name())
        return function(*arguments, **(named or {}))


@dataclass(frozen=True)
class Work:
    """Of one update of a stack."""

    operations: float
    flops: float

    def host(self) -> float:
        """Seconds of a CPU core."""
        return self.operations * ASSUMED["host"][0]

    def device(self, kind: str) -> float:
        """Seconds of the accelerator, where nothing else uses it; `kind` is of the matrix products."""
        return self.operations * ASSUMED["kernel"][0] + self.flops / ASSUMED[kind][0]


def count(cell: Cell, seeds: tuple[int, ...], dataset: Dataset, kind: str) -> Work:
    """The work of an update of one cell, where training is half way: warm-ups are over."""
    choice = cell.config.algorithm.model_dump() | {"matmul_precision": kind}
    config = cell.config.model_copy(update={"algorithm": AlgorithmChoice(**choice)})
    stack = Stack(config.make_algorithm(seeds[0]), seeds)
    stack.fit(dataset, n_steps=1, n_steps_per_epoch=1, show_progress=False)
    fit = stack.fit_
    fit.learner.step = cell.config.n_steps // 2
    sampler = fit.sampler(dataset)
    fit.update(sampler)
    with Operations() as operations, FlopCounterMode(display=False) as flops:
        for _ in range(UPDATES):
            fit.update(sampler)
    return Work(operations.count / UPDATES, flops.get_total_flops() / UPDATES)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="A suite on one accelerator, on paper.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--suite", default="paper-table-2")
    parser.add_argument("--processes", type=int, default=8, help="trials side by side on the accelerator")
    options = parser.parse_args()
    torch.set_num_threads(1)
    suite = SuiteConfig.checked({"suite": options.suite}, title="benchmark")
    dataset = walker_like(10_000)
    cells: dict[str, list[Cell]] = defaultdict(list)
    for cell in suite.cells():
        cells[cell.label].append(cell)
    played = 0
    if suite.evaluation is not None and suite.evaluation.every is not None:
        played = sum(cell.config.n_steps // suite.evaluation.every for cell in suite.cells()) * len(suite.seeds)
    evaluations = played * ASSUMED["evaluation"][0] / 3600
    rows, total = list[list[str]](), dict.fromkeys(KINDS, (evaluations, 0.0))
    for label, some in cells.items():
        updates = sum(cell.config.n_steps for cell in some)
        rows.append([label, f"{len(some)}", f"{updates / 1e6:g} M"])
        for kind in KINDS:
            work = count(some[0], suite.seeds, dataset, kind)
            host, device = work.host() * updates / 3600, work.device(kind) * updates / 3600
            total[kind] = total[kind][0] + host, total[kind][1] + device
            counted = [f"{work.operations:,.0f}", f"{work.flops / 1e9:.2f}", f"{host:.1f}"] if kind == KINDS[0] else []
            rows[-1] += [*counted, f"{device:.1f}"]
        print(*rows[-1], sep=" | ", flush=True)
    rows.append(["evaluations", "", f"{played:,}", "", "", f"{evaluations:.1f}", "", ""])
    sums = [f"{total[KINDS[0]][0]:.1f}", *(f"{device:.1f}" for _, device in total.values())]
    rows.append(["**all**", f"{len(suite.cells())}", "", "", "", *sums])
    hours = {kind: max(host / options.processes, device) for kind, (host, device) in total.items()}
    device = [f"hours of the device, {kind}" for kind in KINDS]
    header = ["algorithm", "cells", "updates", "operations an update", "GFLOP an update", "hours of a core", *device]
    seeds = f"{len(suite.seeds)} seeds are stacked, so an update is one of each of them."
    text = [
        f"# `{options.suite}` on one accelerator, on paper",
        "",
        f"About **{hours['float32']:.0f} GPU hours** in float32 and **{hours['bfloat16']:.0f}** in bfloat16, "
        f"{options.processes} trials side by side: the longer of what the device takes, used by one trial at a time, and of what "
        f"{options.processes} cores of the host take. {seeds} Most of the device's time is that of operations so small that they "
        f"fill a fraction of it: where those of several trials run at once, as with CUDA's MPS, the host's "
        f"{total['float32'][0] / options.processes:.0f} hours are the limit.",
        "",
        table(header, rows),
        "",
        "Counted by `python benchmarks/gpu_plan.py`. Assumed, not measured:",
        "",
        *(f"- `{name}` = {value:g} {what}" for name, (value, what) in ASSUMED.items()),
        "",
    ]
    (HERE / "results" / "gpu_plan.md").write_text("\n".join(text), encoding="utf-8")


if __name__ == "__main__":
    main()
