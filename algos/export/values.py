"""What a policy's critics think of actions, as a graph beside the policy's own.

    inputs    those of the policy, raw; and of actions that are not discrete `action`, raw
    outputs   values: Q(s, a) of every discrete action, [B, n]; else of the given one, [B]. Means over critics, of scaled rewards

Policies with a memory have none here, for their values depend on it too, nor algorithms that value states alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.errors import ConfigError
from ...data.spec import Discrete, Spec
from ..acting.context import ContextPolicy
from ..acting.inputs import named_inputs
from ..acting.policy import Policy, PolicyModule, module_input
from .golden import BATCHES, draw, golden_observations, take
from .graphs import Portable, networks_used, onnx_bytes, with_golden
from .package import VALUES, VALUES_GOLDEN
from .portable import ByName, taken_out

Inputs = dict[str, Tensor]


class ValuesModule(ByName, PolicyModule):
    """Raw observations, and actions where there are too many for all, by name to values; on the CPU, apart from training."""

    def __init__(self, source: PolicyModule, used: list[str], spec: Spec, dtype: torch.dtype | None = None) -> None:
        super().__init__(*taken_out(source, used, dtype or source.dtype))
        self.spec = spec
        self.eval()

    def forward(self, inputs: Inputs) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return values_at(self, self.spec, inputs)

    def act_on(self, inputs: Mapping[str, np.ndarray]) -> Any:
        with torch.no_grad():
            return self(self.arguments(inputs)).numpy()


def values_at(module: PolicyModule, spec: Spec, inputs: Inputs) -> Tensor:
    """Values at inputs by name: [B, n] of discrete actions, else [B]."""
    shown = module_input(spec, {name: inputs[name] for name in named_inputs(spec)})
    if isinstance(spec.action, Discrete):
        return module.values(shown, spec.action.n).to(torch.float32)
    return module.value(shown, inputs["action"]).to(torch.float32)


def values_parts(policy: Policy) -> dict[str, bytes]:
    """The files of a package that hold values; none where the algorithm learns none, or they follow from a memory."""
    module, spec = policy.module, policy.spec
    if getattr(policy, "states", ()) or not type(module.algorithm).learns_values() or isinstance(policy, ContextPolicy):
        return {}
    scalers = module.affines()
    numbers = {name: (affine.scale.double().cpu().numpy(), affine.shift.double().cpu().numpy()) for name, affine in scalers.items()}
    n = 8 * sum(BATCHES)
    drawn = golden_observations(spec, n, numbers)
    if not spec.discrete:
        drawn["action"] = draw(spec.action, n, np.random.default_rng(1), numbers.get("action"))

    def live(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        with torch.no_grad():
            tensors = {name: torch.as_tensor(rows, device=policy.device) for name, rows in inputs.items()}
            return values_at(module, spec, tensors).cpu().numpy()

    try:
        used = networks_used(module, lambda: live(take(drawn, slice(2))))
    except ConfigError:  # as of an algorithm whose settings leave critics out
        return {}
    own, exact = (ValuesModule(module, used, spec, dtype) for dtype in (None, torch.float64))
    if _of_states_alone(drawn, live):
        return {}
    made: Portable = with_golden(own, exact, drawn, live, answers=("values",), noun="critic")
    return {VALUES: onnx_bytes(made), VALUES_GOLDEN: made.golden_bytes}


def _of_states_alone(drawn: Mapping[str, np.ndarray], live: Callable[[Mapping[str, np.ndarray]], np.ndarray]) -> bool:
    """Tell whether values are the same whatever is done, as AWR's: they choose nothing."""
    found = live(drawn)
    if found.ndim > 1:
        return bool((found == found[:, :1]).all())
    return np.array_equal(found, live({**drawn, "action": drawn["action"][::-1].copy()}))
