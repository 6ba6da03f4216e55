"""Policies: raw observations in, raw actions out, for n environments at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..data.scalers import Affine
from ..data.spec import Box, Dict, Spec
from .nets import Nets
from .networks.heads import Observation
from .policy_inputs import raw_inputs

if TYPE_CHECKING:
    from .definition import Definition


class Acting(Protocol):
    """What acts: in evaluation, in collection, from a file."""

    def start(self, n: int) -> Any:
        """The state of n environments that have just been reset."""
        ...

    def step(self, state: Any, observation: Any) -> tuple[Any, np.ndarray]:
        """Raw observations [n, ...] to the next state and raw actions [n, A] or [n]."""
        ...


class PolicyModule(nn.Module):
    """A greedy policy with its scalers inside: raw observations [B, ...] to raw actions [B, A], or int64 [B]."""

    def __init__(
        self,
        algorithm: Definition,
        modules: Mapping[str, nn.Module],
        observation: Affine | None,
        action: Affine | None,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.algorithm, self.dtype = algorithm, dtype
        self.networks = nn.ModuleDict(dict(modules))
        self._affines: dict[str, bool] = {"observation": observation is not None, "action": action is not None}
        for name, affine in (("observation", observation), ("action", action)):
            if affine is not None:
                self.register_buffer(f"{name}_scale", affine.scale)
                self.register_buffer(f"{name}_shift", affine.shift)

    def affine(self, name: str) -> Affine | None:
        """The scaler of "observation" or "action", or None."""
        return Affine(getattr(self, f"{name}_scale"), getattr(self, f"{name}_shift")) if self._affines[name] else None

    def forward(self, observation: Observation) -> Tensor:
        scaler, unscaler = self.affine("observation"), self.affine("action")
        if isinstance(observation, dict):  # no scaler takes these
            scaled = {key: part.to(self.dtype) for key, part in observation.items()}
        else:
            scaled = (scaler.transform(observation) if scaler else observation).to(self.dtype)
        key = torch.zeros((), dtype=torch.int64)
        nets = Nets(dict(self.networks.items()), {}, None, key, self.dtype)
        action = self.algorithm.act(nets, scaled)
        return unscaler.reverse(action) if unscaler else action


class Policy:
    """A policy without memory, over NumPy arrays."""

    def __init__(self, module: PolicyModule, spec: Spec, device: torch.device) -> None:
        self.module, self.spec, self.device = module, spec, device
        self.space = spec.observation

    def start(self, n: int) -> None:
        """There is nothing to remember."""
        return

    def step(self, state: None, observation: Any) -> tuple[None, np.ndarray]:
        """Raw observations [n, ...] to raw actions."""
        return state, self.predict(observation)

    def predict(self, observation: Any) -> np.ndarray:
        """Greedy actions at raw observations [B, ...], an array or a dict of them. Raises DataError when their shape is wrong."""
        inputs = {name: torch.as_tensor(rows, device=self.device) for name, rows in raw_inputs(self.space, observation).items()}
        with torch.no_grad():
            return self.module(module_input(self.space, inputs)).cpu().numpy()


def module_input(space: Box | Dict, inputs: Mapping[str, Tensor]) -> Observation:
    """What a policy module takes, from inputs by name: a tensor, or a dict of them."""
    return inputs["observation"] if isinstance(space, Box) else {key: inputs[f"observation/{key}"] for key in sorted(space.spaces)}
