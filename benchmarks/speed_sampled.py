"""What sampled actions cost, each way: the first layer's product with the state shared or not, images convolved once or not.

    python benchmarks/speed_sampled.py [--repeat 15]

CQL's gap takes 31 actions of each state through its critics, forwards and backwards; BCQ's goal takes its 10 or 100 in parts of 16
through several networks, forwards. The ways are timed in turn, by the processor time of one thread, which other work on the
machine disturbs least. Prints the tables and writes them to `benchmarks/results/speed_sampled.md`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch
from torch import Tensor
from workers import HERE, machine, table

from d3ray.algos.networks.encoders import PixelEncoder
from d3ray.algos.networks.vectors import Repeated
from d3ray.data.spec import Box

BATCH, WIDTH = 256, 256
SHAPES = {"Hopper, 11 + 3": (11, 3), "HalfCheetah, 17 + 6": (17, 6)}
WORK = {"CQL's gap, 2 critics, 31 actions, with gradients": (2, 31, True), "BCQ's goal, 2 critics, 16 actions": (2, 16, False)}
Way = Callable[[], Tensor]


def rest(layers: list[Tensor], h: Tensor) -> Tensor:
    """What follows the first layer's product and bias."""
    h = torch.baddbmm(layers[3], h.relu(), layers[2]).relu()
    return (h * layers[4].mT).sum(-1, keepdim=True) + layers[5]


def side_by_side(layers: list[Tensor], state: Tensor, action: Tensor, n: int) -> Tensor:
    """State and action in one product, states copied: what the algorithms do."""
    x = torch.cat((state.expand(n, *state.shape).flatten(0, 1), action), -1)
    return rest(layers, torch.baddbmm(layers[1], x.expand(len(layers[0]), *x.shape), layers[0]))


def added(layers: list[Tensor], state: Tensor, action: Tensor, n: int) -> Tensor:
    """The state's product once, added to each action's."""
    members, size = len(layers[0]), state.shape[1]
    of_state = torch.baddbmm(layers[1], state.expand(members, *state.shape), layers[0][:, :size])
    of_action = torch.bmm(action.expand(members, *action.shape), layers[0][:, size:])
    return rest(layers, (of_action.unflatten(1, (n, -1)) + of_state[:, None]).flatten(1, 2))


def accumulated(layers: list[Tensor], state: Tensor, action: Tensor, n: int) -> Tensor:
    """The state's product once, copied, and each action's accumulated onto it by the product itself."""
    members, size = len(layers[0]), state.shape[1]
    of_state = torch.baddbmm(layers[1], state.expand(members, *state.shape), layers[0][:, :size])
    copies = of_state[:, None].expand(members, n, *of_state.shape[1:]).flatten(1, 2)
    return rest(layers, torch.baddbmm(copies, action.expand(members, *action.shape), layers[0][:, size:]))


def seconds(way: Way, parameters: list[Any], *, gradients: bool) -> float:
    """Processor seconds of this thread."""
    begin = time.thread_time()
    with torch.set_grad_enabled(gradients):
        value = way()
        if gradients:
            torch.autograd.grad(value.square().mean(), parameters)
    return time.thread_time() - begin


def in_turn(ways: dict[str, Way], parameters: list[Any], repeat: int, *, gradients: bool) -> list[str]:
    """Milliseconds of the first, and the others' speed over its: medians and ranges, round by round."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for k in range(repeat + 1):
        for name, way in ways.items():
            spent = seconds(way, parameters, gradients=gradients)
            if k:  # the first round is a warm-up
                times[name].append(spent)
    first, *others = times.values()
    ratios = [[a / b for a, b in zip(first, other, strict=True)] for other in others]
    return [f"{statistics.median(first) * 1e3:.1f}", *(f"{statistics.median(r):.2f} ({min(r):.2f}–{max(r):.2f})" for r in ratios)]


def first_layers(repeat: int) -> list[list[str]]:
    rows = []
    for shape, (seen, acted) in SHAPES.items():
        for work, (members, n, gradients) in WORK.items():
            torch.manual_seed(0)
            sizes = ((seen + acted, WIDTH), (1, WIDTH), (WIDTH, WIDTH), (1, WIDTH), (WIDTH, 1), (1, 1))
            layers = [(0.1 * torch.randn(members, *size)).requires_grad_() for size in sizes]
            state, action = torch.randn(BATCH, seen), torch.rand(n * BATCH, acted)
            ways = {way.__name__: partial(way, layers, state, action, n) for way in (side_by_side, added, accumulated)}
            values = [way().detach() for way in ways.values()]
            for value in values[1:]:
                torch.testing.assert_close(value, values[0], rtol=1e-3, atol=1e-3)
            share = seen * WIDTH / ((seen + acted) * WIDTH + WIDTH * WIDTH + WIDTH)
            rows.append([shape, work, f"{share:.1%}", *in_turn(ways, layers, repeat, gradients=gradients)])
    return rows


def images(repeat: int) -> list[list[str]]:
    torch.manual_seed(0)
    rows = []
    for side, batch, n in ((84, 8, 10), (84, 8, 31)):
        module = PixelEncoder().build(Box(shape=(4, side, side), dtype="uint8"), 6, 2)
        seen, action = Repeated(torch.rand(batch, 4, side, side), n), torch.rand(n * batch, 6)
        ways = {"copied": partial(module, seen.copies(), action), "once": partial(module, seen, action)}
        label = f"2 critics, {batch} images of 4 × {side} × {side}, {n} actions, with gradients"
        rows.append([label, *in_turn(ways, list(module.parameters()), repeat, gradients=True)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="What sampled actions cost, each way.")
    parser.add_argument("--repeat", type=int, default=15, help="rounds")
    repeat = parser.parse_args().repeat
    torch.set_num_threads(1)
    there = machine()
    first = ["shapes", "work", "most that is saved", "state and action in one product, ms", "state's product added", "accumulated"]
    text = "\n".join(
        [
            "# Sampled actions",
            "",
            "## The first layer's product with the state, shared among a state's actions or not",
            "",
            table(first, first_layers(repeat)),
            "",
            f"Batch {BATCH}, {WIDTH}×{WIDTH}. Most that is saved: the state's part of all products. The last columns are speeds",
            "over the first way's, round by round: above 1.00 sharing would be faster.",
            "",
            "## Images through the convolutions, and what they give through the layer after them, once a state or once an action",
            "",
            table(["work", "once an action, ms", "once a state"], images(max(3, repeat // 3))),
            "",
            "Processor time of one thread, on a machine that other work shared. "
            f"{there['cpu']}; load average {there['load_average']:.2f}. {datetime.now(UTC):%Y-%m-%d}.",
            "",
        ]
    )
    print(text)
    (HERE / "results" / "speed_sampled.md").write_text(text)


if __name__ == "__main__":
    main()
