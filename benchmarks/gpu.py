"""Updates on an accelerator: how many a second for one seed and for a stack, whether the host waits in between, and memory.

    python benchmarks/gpu.py [--device cuda:0] [--seeds 10] [--updates 2000] [--only TD3PlusBC …]

Without an accelerator it runs on the CPU, to show that it runs. Between log points training must not wait for the device: updates
are done with CUDA's synchronisation check set to raise, and what reads a value off the device is counted on any device. Whether a
whole update can be captured as a CUDA graph is tried, and how often a second such a graph runs; nothing trains by graphs yet.
Results of an accelerator go to `benchmarks/results/gpu.md` and `gpu.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import torch
from arrays import hopper_like
from torch.utils._python_dispatch import TorchDispatchMode
from workers import HERE, machine, table, versions

from d3ray.algos.learning.fit import Fit
from d3ray.algos.registry import make_algorithm
from d3ray.algos.stack import Stack
from d3ray.data.dataset import Dataset

RESULTS = HERE / "results"
GOALS = {
    "TD3PlusBC": (4_000, 20_000),
    "IQL": (4_000, 20_000),
    "SAC": (3_000, 20_000),
}  # updates/s of one seed, seed-updates/s of ten
aten = torch.ops.aten
READS = (aten._local_scalar_dense.default, aten.nonzero.default, aten.is_nonzero.default, aten.equal.default)


class HostReads(TorchDispatchMode):
    """Counts operations within that cannot go on before the host has seen a value of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self.count += function in READS
        return function(*arguments, **(named or {}))


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def speed(update: Callable[[], None], n: int, device: torch.device) -> float:
    """Calls a second, after a tenth as many that are not counted."""
    for _ in range(n // 10):
        update()
    finish(device)
    begin = time.perf_counter()
    for _ in range(n):
        update()
    finish(device)
    return n / (time.perf_counter() - begin)


def waits(update: Callable[[], None], device: torch.device, n: int = 100) -> str:
    """Whether the host waits for the device in `n` updates."""
    with HostReads() as reads:
        for _ in range(n):
            update()
    if device.type != "cuda":
        return f"{reads.count} values read in {n} updates"
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(n):
            update()
    except RuntimeError as error:
        return f"yes: {str(error).splitlines()[0]}"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return f"no ({reads.count} values read in {n} updates)"


def captured(fit: Fit, batch: Any, n: int, device: torch.device) -> str:
    """Whether a whole update can be a CUDA graph, and how often a second that runs."""
    if device.type != "cuda":
        return ""
    learner, graph = fit.learner, torch.cuda.CUDAGraph()
    try:
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(4):
                learner.update(batch)
        torch.cuda.current_stream(device).wait_stream(aside)
        with torch.cuda.graph(graph):
            learner.update(batch)
    except RuntimeError as error:
        return f"cannot: {str(error).splitlines()[0]}"
    return f"{speed(graph.replay, n, device):,.0f} a second"


def memory(fit: Fit, device: torch.device) -> float:
    """MiB: the most that was allocated on an accelerator; on the CPU what the learner's state takes."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return sum(t.numel() * t.element_size() for t in fit.learner.state().values()) / 2**20


def measure(name: str, seeds: int, dataset: Dataset, n: int, device: torch.device) -> dict[str, Any]:
    """One algorithm with one seed or a stack."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    algorithm = make_algorithm({"name": name, "batch_size": 256}, seed=0, device=str(device))
    subject: Any = algorithm if seeds == 1 else Stack(algorithm, range(seeds))
    subject.fit(dataset, n_steps=4, n_steps_per_epoch=4)
    fit: Fit = subject.fit_
    sampler = fit.sampler(dataset)

    def update() -> None:
        fit.update(sampler)

    found = {"algorithm": name, "seeds": seeds, "per_second": seeds * speed(update, n, device), "waits": waits(update, device)}
    found |= {"memory_mib": memory(fit, device), "graph": captured(fit, sampler.sample(fit.learner.step), n, device)}
    return found


def shown(found: dict[str, Any], device: torch.device) -> list[str]:
    """A row of the table; goals are those of an H200-class card."""
    goal = GOALS[found["algorithm"]][found["seeds"] > 1] if found["seeds"] in (1, 10) and device.type == "cuda" else None
    state = "" if goal is None else f"≥ {goal:,}: {'met' if found['per_second'] >= goal else 'NOT met'}"
    cells = [found["algorithm"], str(found["seeds"]), f"{found['per_second']:,.0f}", state, found["waits"]]
    return [*cells, f"{found['memory_mib']:,.0f}", found["graph"]]


def main() -> None:
    here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    parser = argparse.ArgumentParser(
        description="Updates on an accelerator.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--device", type=torch.device, default=here)
    parser.add_argument("--seeds", type=int, default=10, help="of the stack")
    parser.add_argument("--updates", type=int, default=2_000 if here and here.type == "cuda" else 20)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the dataset")
    parser.add_argument("--only", nargs="+", choices=[*GOALS], default=[*GOALS])
    options = parser.parse_args()
    dataset = hopper_like(options.rows)
    report: dict[str, Any] = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "versions": versions(), "results": []}
    for name in options.only:
        for seeds in (1, options.seeds):
            report["results"].append(measure(name, seeds, dataset, options.updates, options.device))
            print(*shown(report["results"][-1], options.device), sep=" | ", flush=True)
    header = [
        "batch 256, 256×256",
        "seeds",
        "seed-updates/s",
        "goal",
        "the host waits",
        "memory, MiB",
        "a whole update as a CUDA graph",
    ]
    where = ", ".join(report["machine"]["accelerators"]) or report["machine"]["cpu"]
    used = ", ".join(f"{n} {v}" for n, v in report["versions"].items())
    text = "\n".join(
        [
            "# GPU",
            "",
            table(header, [shown(r, options.device) for r in report["results"]]),
            "",
            f"{where}. {report['date']}. {used}.",
            "",
        ]
    )
    print("\n" + text)
    if options.device.type == "cuda":
        (RESULTS / "gpu.md").write_text(text)
        (RESULTS / "gpu.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
