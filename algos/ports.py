"""Inputs of a policy beside the observation: memory that it hands on from step to step, and random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..data.random import fold, normal, root_key, uniform

_BLOCK, _MANY = 64, 64  # steps whose numbers are drawn at once, of at most so many decisions each


@dataclass(frozen=True)
class Memory:
    """Memory that is handed on from step to step, [B, *shape] floats.

    Attributes:
        shape: Of one.
        start: What it holds where an episode begins.
    """

    shape: tuple[int, ...]
    start: float = 0.0


@dataclass(frozen=True)
class Noise:
    """Random numbers [B, *shape], drawn anew for every decision.

    Attributes:
        shape: Of one decision's.
        kind: Standard normal, or uniform on (0, 1).
        always: Whether the greedy policy draws too, as one that starts from noise; else only exploring does.
    """

    shape: tuple[int, ...]
    kind: Literal["normal", "uniform"] = "normal"
    always: bool = False


Ports = Mapping[str, Memory | Noise]
Tensors = dict[str, Tensor]


def memories(ports: Ports) -> dict[str, Memory]:
    return {name: port for name, port in ports.items() if isinstance(port, Memory)}


def noises(ports: Ports, *, exploring: bool) -> dict[str, Noise]:
    """The random numbers among them that greedy acting, or exploring, takes."""
    return {name: port for name, port in ports.items() if isinstance(port, Noise) and (exploring or port.always)}


def started(ports: Ports, n: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensors:
    """The memory of n environments where episodes begin."""
    return {name: torch.full((n, *port.shape), port.start, dtype=dtype, device=device) for name, port in memories(ports).items()}


def drawn(ports: Ports, key: Tensor, n: int, dtype: torch.dtype, *, exploring: bool = False) -> Tensors:
    """Random numbers for n decisions at each address, (…,) to (…, n, *shape), on its device."""
    draw = {"normal": normal, "uniform": uniform}
    found = noises(ports, exploring=exploring)
    return {name: draw[port.kind](fold(key, name), (n, *port.shape), dtype) for name, port in found.items()}


class Draws:
    """The random numbers of an exploring policy's decisions, by seed and step.

    Those of a block of steps are worked out at once, which changes no value and is most of what a draw costs.

    Args:
        ports, dtype, device: Of the policy.
    """

    def __init__(self, ports: Ports, dtype: torch.dtype, device: torch.device) -> None:
        self._ports, self._dtype, self._device = ports, dtype, device
        self._at: tuple[int, int, int] | None = None  # seed, block and n of what is held
        self._held: Tensors = {}

    def at(self, seed: int, step: int, n: int) -> Tensors:
        """Of n decisions at a step, [n, ...] each."""
        size = _BLOCK if n <= _MANY else 1
        block, within = divmod(step, size)
        if self._at != (seed, block, n):
            steps = torch.arange(block * size, (block + 1) * size, device=self._device)
            keys = fold(fold(root_key(seed, self._device), "policy"), steps)
            self._held, self._at = drawn(self._ports, keys, n, self._dtype, exploring=True), (seed, block, n)
        return {name: numbers[within] for name, numbers in self._held.items()}
