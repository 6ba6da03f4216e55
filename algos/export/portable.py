"""Policies taken out of what trains them: copies on the CPU, ready to be written in any form."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...data.scalers import Affine
from ...data.spec import Box, Spec
from ..acting.context import ContextModule, typed
from ..acting.inputs import action_dtype
from ..acting.policy import PolicyModule, module_input
from ..acting.ported import Inputs, PortedModule
from ..networks.perceptrons import Observation


class PortablePolicy(PolicyModule):
    """A policy on the CPU that shares nothing with training: only the networks that act, actions in the data's type."""

    def __init__(self, source: PolicyModule, used: list[str], spec: Spec, dtype: torch.dtype | None = None) -> None:
        super().__init__(*taken_out(source, used, dtype or source.dtype))
        self.spec = spec
        self.eval()

    def forward(self, observation: Observation) -> Tensor:
        seen = module_input(self.spec, cast("Inputs", observation)) if self.spec.action_mask else observation
        return taken(self.spec, super().forward(seen))

    def act_on(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        with torch.no_grad():
            return self(self.arguments(inputs)).numpy()

    def arguments(self, inputs: Mapping[str, np.ndarray]) -> Observation:
        """Give `forward`'s argument: a tensor, or a dict of them; with a mask of legal actions all inputs by name."""
        tensors = {name: torch.as_tensor(rows) for name, rows in inputs.items()}
        return tensors if self.spec.action_mask else module_input(self.spec, tensors)


class ByName:
    """Runs a torch module on the CPU that takes inputs by name and gives several outputs."""

    def act_on(self, inputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        with torch.no_grad():
            return tuple(output.cpu().numpy() for output in cast("nn.Module", self)(self.arguments(inputs)))

    def arguments(self, inputs: Mapping[str, np.ndarray]) -> Any:
        return {name: torch.as_tensor(rows) for name, rows in inputs.items()}


class PortableContext(ByName, ContextModule):
    """A policy on the CPU that looks back: inputs and memory by name to the action and what the memory becomes."""

    def __init__(self, source: ContextModule, used: list[str], dtype: torch.dtype | None = None) -> None:
        parts = taken_out(source, used, dtype or source.dtype)
        super().__init__(*parts, spec=source.spec, context=source.context, return_scale=source.return_scale)
        self.eval()

    def forward(self, inputs: Inputs) -> tuple[Tensor, ...]:
        action, *new = super().forward(inputs)
        return taken(self.spec, action), *new


class PortablePorted(ByName, PortedModule):
    """A policy on the CPU with a memory of its own, or that draws."""

    def __init__(self, source: PortedModule, used: list[str], dtype: torch.dtype | None = None) -> None:
        super().__init__(*taken_out(source, used, dtype or source.dtype), spec=source.spec)
        self.states, self.noise_inputs = source.states, source.noise_inputs  # in the types of the one that is written
        self.eval()

    def forward(self, inputs: Inputs) -> tuple[Tensor, ...]:
        kinds = {state.name: getattr(torch, state.dtype) for state in self.states}
        action, *new = super().forward({name: part.to(self.dtype) if name in kinds else part for name, part in inputs.items()})
        return taken(self.spec, action), *(part.to(kinds[s.name]) for part, s in zip(new, self.states, strict=True))


def taken(spec: Spec, action: Tensor) -> Tensor:
    """Give raw actions in the environment's type and shape, as `inputs.taken` does of arrays."""
    if not isinstance(spec.action, Box):
        return action.to(torch.int64)
    return typed(action, getattr(torch, action_dtype(spec))).reshape(-1, *spec.action.taken_shape)


def taken_out(source: PolicyModule, used: list[str], dtype: torch.dtype) -> tuple[Any, ...]:
    """Copy what a `PolicyModule` is made of: on the CPU the networks that act, scalers and bounds."""
    networks = {name: copy.deepcopy(source.networks[name]).to("cpu", dtype).requires_grad_(False) for name in used}
    scalers = {name: _own(name, affine, dtype) for name, affine in source.affines().items()}
    bounds = source.bounds()
    h = source.coefficients()  # as they are now: an export is of one moment
    return (
        source.algorithm,
        networks,
        scalers,
        dtype,
        lambda: h,
        source.ports,
        bounds and tuple(bound.to("cpu", dtype, copy=True) for bound in bounds),
    )


def _own(name: str, affine: Affine, dtype: torch.dtype) -> Affine:
    # torch's addcmul rounds once. Exported it becomes a product and a sum: float64, or large means lose digits between the two.
    exact = affine.scale.dtype == torch.float64 or bool(affine.shift.any())
    return affine.to(torch.float64 if name != "action" and exact else dtype, "cpu")
