"""Policies that look back: a memory of the latest steps goes in, and comes out moved on by one step.

    inputs    observation (or observation/KEY), action_mask of data that have one, reward: what is shown, and what the environment
              gave since the last step
    memory    context/observation, context/action, context/return_to_go: the latest T steps; timestep: steps done in the episode.
              At its start context/return_to_go is the return that is asked for, context/action the first of discrete actions, and
              all else is 0
    outputs   action, and next/… of each part of the memory

A return to go falls by each reward. The action that comes out is also the last of next/context/action: who does another one in its
place writes that one there, as an explorer's is, for later decisions look back at it. All is in raw units, but for what the
networks see.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.batch import Context
from ...data.errors import ConfigError
from ...data.masks import ACTION_MASK
from ...data.spec import Discrete, Spec, space_columns
from .graph_inputs import StateInput
from .inputs import action_dtype
from .policy import module_input
from .ported import Inputs, MemoryModule, MemoryPolicy
from .remembering import RETURN_TO_GO, REWARD, Memory


class ContextModule(MemoryModule):
    """A policy whose memory is its latest `context` steps; `return_scale` is what returns are multiplied by for the networks."""

    def __init__(self, *arguments: Any, spec: Spec, context: int, return_scale: float) -> None:
        super().__init__(*arguments, spec=spec)
        self.context, self.return_scale = context, return_scale
        self._nothing = spec.action.start if isinstance(spec.action, Discrete) else 0  # stands for actions that were not taken
        seen = {name: (leaf.shape, leaf.dtype) for name, leaf in space_columns(spec.observation).items()}
        parts = {**seen, "action": (spec.action.shape, action_dtype(spec)), "return_to_go": ((), "float32")}
        self.states = (
            *(
                _state(f"context/{name}", dtype, (context, *shape), self._nothing if name == "action" else 0)
                for name, (shape, dtype) in sorted(parts.items())
            ),
            _state("timestep", "int64", ()),
        )

    def forward(self, inputs: Inputs) -> tuple[Tensor, ...]:
        left = inputs[RETURN_TO_GO][:, -1] - inputs[REWARD]
        taken = _moved_on(inputs["context/action"], torch.full_like(inputs["context/action"][:, 0], self._nothing))
        shown = space_columns(self.spec.observation)
        new = {f"context/{name}": _moved_on(inputs[f"context/{name}"], inputs[name]) for name in shown}
        new |= {RETURN_TO_GO: _moved_on(inputs[RETURN_TO_GO], left), "timestep": inputs["timestep"] + 1}
        seen = {name: new[f"context/{name}"] for name in shown}
        if self.spec.action_mask:
            seen[ACTION_MASK] = inputs[ACTION_MASK][:, None].expand(-1, self.context, -1)  # the present step's alone is looked at
        timestep = inputs["timestep"][:, None] - torch.arange(self.context - 1, -1, -1, device=left.device)
        context = Context(
            observation=self._seen(module_input(self.spec, seen)),
            action=self._scaled_action(taken),
            return_to_go=(new[RETURN_TO_GO] * self.return_scale).to(self.dtype),
            timestep=timestep.clamp(min=0),
            mask=timestep >= 0,
        )
        action = typed(self.raw(self.algorithm.act(self._nets(), context, {}, {})[0]), taken.dtype)
        new["context/action"] = torch.cat((taken[:, :-1], action[:, None]), 1)
        return action, *(new[state.name] for state in self.states)

    def _scaled_action(self, raw: Tensor) -> Tensor:
        affines = self.affines()
        if "action" in affines:
            return affines["action"].transform(raw)
        return raw if self.spec.discrete else raw.to(self.dtype)


class ContextPolicy(MemoryPolicy):
    """A policy of a `ContextModule`. `executed` and `rewarded` tell its memory what came of a step."""

    def __init__(self, module: ContextModule, device: torch.device, target_returns: tuple[float, ...]) -> None:
        super().__init__(module, device)
        self.looking_back, self.target_returns = module, target_returns

    def propose(self, what: str, state: Memory, observation: Any, *, step: int, seed: int) -> tuple[Memory, np.ndarray]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if what != "action":
            raise ConfigError(f"{self.name} draws nothing and learns no values: choose an explorer that departs from its actions.")
        return self.step(state, observation)


def _state(name: str, dtype: str, shape: tuple[int, ...], start: float = 0) -> StateInput:
    return StateInput(name=name, dtype=dtype, shape=("batch", *shape), becomes=f"next/{name}", start=start)


def typed(action: Tensor, dtype: torch.dtype) -> Tensor:
    """Actions in a type; where that is of whole numbers the nearest of them."""
    return (action if dtype.is_floating_point else action.round()).to(dtype)


def _moved_on(steps: Tensor, now: Tensor) -> Tensor:
    return torch.cat((steps[:, 1:], now[:, None]), 1)
