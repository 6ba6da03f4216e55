"""Policies whose graph takes more than observations: memory that is handed on, and random numbers.

    inputs    observation (or observation/KEY), action_mask of data that have one, state/NAME of each memory, noise/NAME of each
              noise that is always drawn
    outputs   action, and next/state/NAME of each memory

Observations and actions are raw; memory and noise are as `act` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ...data.random import fold, root_key
from ...data.spec import Discrete, Spec
from ..ports import Ports, drawn, memories, noises
from ..recurrence import acted
from .graph_inputs import NoiseInput, StateInput
from .inputs import named_inputs, raw_inputs
from .policy import Policy, PolicyModule, module_input
from .remembering import DECISIONS, Memory, Remembering

Inputs = dict[str, Tensor]


class MemoryModule(PolicyModule):
    """A greedy policy with its scalers inside: inputs by name to the action, and what each part of the memory becomes."""

    states: tuple[StateInput, ...] = ()
    noise_inputs: tuple[NoiseInput, ...] = ()

    def __init__(self, *arguments: Any, spec: Spec) -> None:
        super().__init__(*arguments)
        self.spec = spec

    def forward(self, inputs: Inputs) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise NotImplementedError


class MemoryPolicy(Remembering, Policy):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A policy with a memory, or one that draws, over NumPy arrays, for n environments at once."""

    def __init__(self, module: MemoryModule, device: torch.device, **frames: Any) -> None:
        Policy.__init__(self, module, module.spec, device, **frames)
        self.name, self.states, self.noises = module.algorithm.name, module.states, module.noise_inputs

    def run_graph(self, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        with torch.no_grad():
            outputs = self.module({name: torch.as_tensor(rows, device=self.device) for name, rows in inputs.items()})
        return tuple(output.cpu().numpy() for output in outputs)


class PortedModule(MemoryModule):
    """A policy whose memory and random numbers are what `act` names."""

    def __init__(self, *arguments: Any, spec: Spec) -> None:
        super().__init__(*arguments, spec=spec)
        self.states, self.noise_inputs = graph_inputs(self.ports, self.dtype)

    def forward(self, inputs: Inputs) -> tuple[Tensor, ...]:
        shown = {name: inputs[name] for name in named_inputs(self.spec)}
        state = {name: inputs[f"state/{name}"] for name in memories(self.ports)}
        noise = {name: inputs[f"noise/{name}"].to(self.dtype) for name in noises(self.ports, exploring=False)}
        return self.acted(module_input(self.spec, shown), state, noise)

    def acted(self, observation: Any, state: Inputs, noise: Inputs) -> tuple[Tensor, ...]:
        """Raw actions, and what each memory becomes."""
        action, after = acted(self.algorithm, self._nets(), self._seen(observation), state, noise)
        return self.raw(action), *(after[name] for name in memories(self.ports))


def graph_inputs(ports: Ports, dtype: torch.dtype) -> tuple[tuple[StateInput, ...], tuple[NoiseInput, ...]]:
    kind = str(dtype).removeprefix("torch.")
    states = (
        StateInput(name=f"state/{name}", dtype=kind, shape=("batch", *port.shape), becomes=f"next/state/{name}", start=port.start)
        for name, port in memories(ports).items()
    )
    drawn = (
        NoiseInput(name=f"noise/{name}", dtype="float32", shape=("batch", *port.shape), distribution=port.kind)
        for name, port in noises(ports, exploring=False).items()
    )
    return tuple(states), tuple(drawn)


class PortedPolicy(MemoryPolicy):
    """A policy of a `PortedModule`. Noise is drawn by seed, environment and decision."""

    def __init__(self, module: PortedModule, device: torch.device, seed: int, **frames: Any) -> None:
        super().__init__(module, device, **frames)
        self.ported, self.seed = module, seed

    def draw(self, observation: Any, *, step: int, seed: int) -> np.ndarray:
        if self.states:
            self.predict(observation)
        return super().draw(observation, step=step, seed=seed)

    def propose(self, what: str, state: Memory, observation: Any, *, step: int, seed: int) -> tuple[Memory, np.ndarray]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if what != "draw":
            self.check_departs(what)
            memory, action = self.step(state, observation)
            return memory, action if what == "action" else self._values(state, observation)
        memory, action = self._explored(state, observation, fold(fold(root_key(seed), "policy"), step))
        return memory, action

    def log_prob(self, observation: Any, action: np.ndarray) -> np.ndarray:
        if self.states:
            self.predict(observation)
        return super().log_prob(observation, action)

    def _values(self, state: Memory, observation: Any) -> np.ndarray:
        """Q(s, a) of every discrete action, [n, A]."""
        handed = {name: torch.as_tensor(state[f"state/{name}"], device=self.device) for name in memories(self.ported.ports)}
        n_actions = cast("Discrete", self.spec.action).n
        return self._answer(lambda x: self.ported.values(x, n_actions, handed), observation)

    def _explored(self, state: Memory, observation: Any, key: Tensor) -> tuple[Memory, np.ndarray]:
        """A step with all noise drawn, at an address."""
        rows = {name: torch.as_tensor(part, device=self.device) for name, part in raw_inputs(self.spec, observation).items()}
        n, ports = len(next(iter(rows.values()))), self.ported.ports
        noise = {name: t.to(self.device) for name, t in drawn(ports, key, n, self.ported.dtype, exploring=True).items()}
        memory = {name: torch.as_tensor(state[f"state/{name}"], device=self.device) for name in memories(ports)}
        with torch.no_grad():
            action, *new = self.ported.acted(module_input(self.spec, rows), memory, noise)
        after = {port.name: tensor.cpu().numpy() for port, tensor in zip(self.states, new, strict=True)}
        if DECISIONS in state:
            after[DECISIONS] = state[DECISIONS] + 1
        return after, action.cpu().numpy()
