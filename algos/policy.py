"""Policies: raw observations in, raw actions out, for n environments at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..data.scalers import Affine
from ..data.spec import ObservationSpace, Spec
from .nets import Nets
from .networks.vectors import Observation
from .policy_inputs import named_inputs, raw_inputs

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
        scalers: Mapping[str, Affine],
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.algorithm, self.dtype = algorithm, dtype
        self.networks = nn.ModuleDict(dict(modules))
        self._buffers_of: dict[str, str] = {}  # by what is scaled; a key of a dict may be no name for a buffer, so it is numbered
        for at, (name, affine) in enumerate(sorted(scalers.items())):
            self._buffers_of[name] = buffer = f"observation_{at}" if "/" in name else name
            self.register_buffer(f"{buffer}_scale", affine.scale)
            self.register_buffer(f"{buffer}_shift", affine.shift)

    def affines(self) -> dict[str, Affine]:
        """The scalers that there are: `action`, and `observation` or `observation/KEY` of dicts."""
        return {
            name: Affine(getattr(self, f"{buffer}_scale"), getattr(self, f"{buffer}_shift"))
            for name, buffer in self._buffers_of.items()
        }

    def forward(self, observation: Observation) -> Tensor:
        affines = self.affines()

        def scaled(name: str, raw: Tensor) -> Tensor:
            return (affines[name].transform(raw) if name in affines else raw).to(self.dtype)

        if isinstance(observation, dict):
            seen = {key: scaled(f"observation/{key}", part) for key, part in observation.items()}
        else:
            seen = scaled("observation", observation)
        nets = Nets(dict(self.networks.items()), {}, None, None, self.dtype)
        action = self.algorithm.act(nets, seen)
        return affines["action"].reverse(action) if "action" in affines else action


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


def module_input(space: ObservationSpace, inputs: Mapping[str, Tensor]) -> Observation:
    """What a policy module takes, from inputs by name: a tensor, or a dict of them."""
    names = named_inputs(space)
    return inputs["observation"] if "observation" in names else {name.partition("/")[2]: inputs[name] for name in names}
