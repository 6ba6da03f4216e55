"""The policy of one of RLlib's modules: raw observations in, raw actions out, in torch alone, so it is exported like any other.

RLlib puts three things around a module that d3ray puts inside: the filter of observations, the mode of the action distribution, and
the way from the module's actions to the environment's, scaled to the bounds of the action space, or clipped to them.

One thing differs from what RLlib does when it does not explore: of a squashed Gaussian (SAC, CQL, IQL) it takes the mean before the
squashing, and clips it (https://github.com/ray-project/ray/issues/51544). Here the mean is squashed, as training has it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...algos.acting.inputs import raw_inputs
from ...data.spec import Box, Spec


@dataclass(frozen=True)
class Filter:
    """A running mean and deviation of observations, as RLlib's MeanStdFilter keeps it."""

    mean: np.ndarray
    std: np.ndarray
    clip: float | None


@dataclass(frozen=True)
class Bounds:
    """The finite bounds of an action space, and what is done with them.

    Attributes:
        scales: Whether the module's actions, in [-1, 1], are scaled to the bounds before they are clipped; else only clipped.
    """

    low: np.ndarray
    high: np.ndarray
    scales: bool


class Named:
    """Holds the algorithm's name for exporters."""

    def __init__(self, name: str) -> None:
        self.name = name


class RllibPolicyModule(nn.Module):
    """A greedy policy: raw observations [B, ...] to raw actions, float32 [B, A] or int64 [B].

    Args:
        module: RLlib's, with `_forward_inference`.
        spec: Of raw observations and actions.
        bounds: None: actions are left as they are, being discrete or without bounds.
        seen: None: observations are not filtered.
        name: Of the algorithm.
    """

    def __init__(self, module: nn.Module, spec: Spec, bounds: Bounds | None, seen: Filter | None, name: str) -> None:
        super().__init__()
        self.module, self.spec, self.algorithm = module, spec, Named(name)
        self.bounds, self.seen = bounds, seen
        numbers = {} if seen is None else {"mean": seen.mean, "std": seen.std}
        numbers |= {} if bounds is None else {"low": bounds.low, "high": bounds.high}
        for key, number in numbers.items():
            self.register_buffer(f"_{key}", torch.as_tensor(np.asarray(number, np.float64)))

    @property
    def dtype(self) -> torch.dtype:
        return next(self.module.parameters()).dtype

    def forward(self, observation: Tensor) -> Tensor:
        x = observation
        if self.seen is not None:
            x = (x.double() - self.get_buffer("_mean")) / (self.get_buffer("_std") + 1e-8)
            x = x if self.seen.clip is None else x.clamp(-self.seen.clip, self.seen.clip)
        out = self.module._forward_inference({"obs": x.to(self.dtype)})  # pyright: ignore[reportCallIssue]
        action = out["actions"] if "actions" in out else self._mode(out["action_dist_inputs"])
        if not isinstance(self.spec.action, Box):
            return action.long()
        if self.bounds is not None:
            low, high = self.get_buffer("_low").to(action.dtype), self.get_buffer("_high").to(action.dtype)
            if self.bounds.scales:
                action = low + (action + 1) * (high - low) / 2
            action = torch.minimum(torch.maximum(action, low), high)
        return action.float()

    def _mode(self, inputs: Tensor) -> Tensor:
        distribution = self.module.get_inference_action_dist_cls().from_logits(inputs)  # pyright: ignore[reportCallIssue]
        action = distribution.to_deterministic().sample()
        return distribution._squash(action) if hasattr(distribution, "_squash") else action

    def act_on(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        with torch.no_grad():
            return self(self.arguments(inputs)).numpy()

    def arguments(self, inputs: Mapping[str, np.ndarray]) -> Tensor:
        return torch.as_tensor(inputs["observation"])


class RllibPolicy:
    """A policy without memory, over NumPy arrays."""

    def __init__(self, module: RllibPolicyModule, device: torch.device) -> None:
        self.module, self.spec, self.device = module, module.spec, device

    def start(self, n: int) -> None:
        """There is nothing to remember."""
        return

    def step(self, state: None, observation: Any) -> tuple[None, np.ndarray]:
        """Raw observations [n, ...] to raw actions."""
        return state, self.predict(observation)

    def predict(self, observation: Any) -> np.ndarray:
        """Greedy actions at raw observations [B, ...]. Raises DataError when their shape is wrong."""
        rows = raw_inputs(self.spec, observation)["observation"]
        with torch.no_grad():
            return self.module(torch.as_tensor(rows, device=self.device)).cpu().numpy()

    def portable(self, dtype: torch.dtype = torch.float32) -> RllibPolicyModule:
        """A copy on the CPU that shares nothing with training."""
        module = copy.deepcopy(self.module.module).to("cpu", dtype).requires_grad_(False)
        made = RllibPolicyModule(module, self.spec, self.module.bounds, self.module.seen, self.module.algorithm.name)
        return made.eval()


def module_of(policy: RllibPolicy) -> nn.Module:
    """RLlib's own module of a policy."""
    return policy.module.module
