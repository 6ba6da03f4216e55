"""Policies: raw observations in, raw actions out, for n environments at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...data.errors import ConfigError
from ...data.frames import Padding
from ...data.masks import ACTION_MASK, Masked
from ...data.scalers import Affine
from ...data.spec import Discrete, Spec, space_columns
from ..definition import Definition
from ..learning.scaling import Bounds
from ..nets import Hyper, Nets
from ..networks.perceptrons import Observation
from ..ports import Draws, Ports, Tensors, noises, started
from ..recurrence import acted, remembered
from .frames import Memoryless
from .inputs import raw_inputs
from .plain import plain_array
from .remembering import in_pieces


class PolicyModule(nn.Module):
    """A greedy policy with its scalers inside: raw observations [B, ...] to raw actions [B, A], or int64 [B].

    `scalers` are `action`, and `observation` or `observation/KEY`, as far as there are some; `dtype` is that of what the networks
    see; `coefficients` gives the hyper-parameters as they are now; `ports` are what it takes beside observations; and `bounds` the
    smallest and largest raw action [A], to which actions are clipped (None: none leaves its space).
    """

    def __init__(
        self,
        algorithm: Definition,
        modules: Mapping[str, nn.Module],
        scalers: Mapping[str, Affine],
        dtype: torch.dtype,
        coefficients: Callable[[], Hyper],
        ports: Ports,
        bounds: Bounds | None = None,
    ) -> None:
        super().__init__()
        self.algorithm, self.dtype, self.coefficients, self.ports = algorithm, dtype, coefficients, ports
        self.networks = nn.ModuleDict(dict(modules))
        self._limits = {name: affine.limit for name, affine in scalers.items()}
        self._buffers_of: dict[str, str] = {}  # by what is scaled; a key of a dict may be no name for a buffer, so it is numbered
        for at, (name, affine) in enumerate(sorted(scalers.items())):
            self._buffers_of[name] = buffer = f"observation_{at}" if "/" in name else name
            self.register_buffer(f"{buffer}_scale", affine.scale)
            self.register_buffer(f"{buffer}_shift", affine.shift)
        self.bounded = bounds is not None
        for name, bound in zip(("low", "high"), bounds or (), strict=False):
            self.register_buffer(f"action_{name}", bound)

    def affines(self) -> dict[str, Affine]:
        """The scalers that there are: `action`, and `observation` or `observation/KEY` of dicts."""
        return {
            name: Affine(getattr(self, f"{buffer}_scale"), getattr(self, f"{buffer}_shift"), self._limits[name])
            for name, buffer in self._buffers_of.items()
        }

    @property
    def stochastic(self) -> bool:
        return bool(noises(self.ports, exploring=True))

    def bounds(self) -> Bounds | None:
        return (self.get_buffer("action_low"), self.get_buffer("action_high")) if self.bounded else None

    def forward(self, observation: Observation) -> Tensor:
        return self.raw(acted(self.algorithm, self._nets(), self._seen(observation), {}, {})[0])

    def draw(self, observation: Observation, noise: Callable[[int], Tensors]) -> Tensor:
        """An action at an episode's start, with the random numbers that `noise` gives for so many; without any the greedy one."""
        seen = self._seen(observation)
        first = pytree.tree_leaves(seen)[0]
        memory = started(self.ports, len(first), self.dtype, first.device)
        return self.raw(acted(self.algorithm, self._nets(), seen, memory, noise(len(first)))[0])

    def log_prob(self, observation: Observation, action: Tensor) -> Tensor:
        """Log density of raw actions [B, A] under a stochastic policy, [B], in the units of raw actions."""
        if (scaler := self.affines().get("action")) is None:
            return self.algorithm.log_prob(self._nets(), self._seen(observation), action)
        scaled = self.algorithm.log_prob(self._nets(), self._seen(observation), scaler.transform(action))
        return scaled + scaler.scale.abs().log().expand(action.shape[-1]).sum()

    def value(self, observation: Observation, action: Tensor) -> Tensor:
        """Q(s, a) of raw actions [B, A], [B]. Raises ConfigError where an algorithm learns no values."""
        scaler = self.affines().get("action")
        scaled = action if scaler is None else scaler.transform(action)
        return self.algorithm.value(self._nets(), self._seen(observation), scaled)

    def values(self, observation: Observation, n_actions: int, state: Tensors | None = None) -> Tensor:
        """Q(s, a) of every discrete action, [B, A], from memories [B, ...] on.

        Raises ConfigError where an algorithm learns no values.
        """
        seen = self._seen(observation)
        each = cast("Observation", pytree.tree_map(lambda x: _repeated(x, n_actions), seen))
        first = pytree.tree_leaves(seen)[0]
        row = torch.zeros_like(first.unsqueeze(-1).flatten(1)[:, :1], dtype=torch.int64)  # whose length a trace follows
        action = (row + torch.arange(n_actions, device=first.device)).reshape(-1)
        nets, memories = self._nets(), {name: part.repeat_interleave(n_actions, 0) for name, part in (state or {}).items()}
        with remembered(self.algorithm, nets, memories) if memories else nullcontext():
            return self.algorithm.value(nets, each, action).reshape(-1, n_actions)

    def _nets(self) -> Nets:
        return Nets(dict(self.networks.items()), {}, None, None, self.dtype, h=self.coefficients())

    def raw(self, action: Tensor) -> Tensor:
        affines, bounds = self.affines(), self.bounds()
        raw = affines["action"].reverse(action) if "action" in affines else action
        return raw if bounds is None else torch.clamp(raw, *bounds)

    def _seen(self, observation: Observation) -> Observation:
        if isinstance(observation, Masked):
            return Masked(self._seen(observation.observation), observation.action_mask)
        affines = self.affines()

        def scaled(name: str, raw: Tensor) -> Tensor:
            return (affines[name].transform(raw) if name in affines else raw).to(self.dtype)

        if isinstance(observation, dict):
            return {key: scaled(f"observation/{key}", part) for key, part in observation.items()}
        return scaled("observation", observation)


class Policy(Memoryless):
    """A policy without memory, over NumPy arrays.

    Args:
        module: What acts.
        spec: The spaces that it acts on.
        device: Where it lies.
        frames, frame_padding: How the observations that it was trained on were stacked.
    """

    def __init__(
        self, module: PolicyModule, spec: Spec, device: torch.device, *, frames: int = 1, frame_padding: Padding = "zero"
    ) -> None:
        self.module, self.spec, self.device = module, spec, device
        self.frames, self.frame_padding = frames, frame_padding
        self._draws = Draws(module.ports, module.dtype, device)

    def propose(self, what: str, state: None, observation: Any, *, step: int, seed: int) -> tuple[None, np.ndarray]:
        """Give what an explorer departs from: "action", the greedy one; "draw", one drawn at (seed, step); "values", [B, A].

        Raises:
            ConfigError: there is nothing to draw from, or an algorithm learns no values of discrete actions.
        """
        self.check_departs(what)
        match what:
            case "draw":
                return state, self.draw(observation, step=step, seed=seed)
            case "values":
                n_actions = cast("Discrete", self.spec.action).n
                return state, self._answer(lambda x: self.module.values(x, n_actions), observation)
            case _:
                return state, self._acted(observation)

    def check_departs(self, what: str) -> None:
        """Raises ConfigError where there is nothing of the kind that an explorer departs from."""
        name, space = self.module.algorithm.name, self.spec.action
        if what == "values" and not isinstance(space, Discrete):
            raise ConfigError(f"{name} has no values of single actions, for its actions are {self.spec.action_kind}.")
        if what == "draw" and not self.module.stochastic:
            raise ConfigError(f"The policy of {name} is deterministic, so there is nothing to draw: choose another explorer.")

    def draw(self, observation: Any, *, step: int, seed: int) -> np.ndarray:
        """Actions drawn from the policy with the numbers of (seed, step); a deterministic policy's are greedy."""
        return self._answer(lambda x: self.module.draw(x, partial(self._draws.at, seed, step)), observation)

    def log_prob(self, observation: Any, action: np.ndarray) -> np.ndarray:
        """Log densities [n] of raw actions [n, A] at raw observations, in the units of raw actions.

        What a squashed policy drew so near its bounds that float32 cannot tell gets the density at 1 - 1e-6 of them. What was drawn
        beyond a bounded space and clipped gets the density at the bound, not what lies beyond.

        Raises:
            ConfigError: the algorithm's policy is deterministic, or has no density.
        """
        if not self.module.stochastic:
            raise ConfigError(f"The policy of {self.module.algorithm.name} is deterministic, so its actions have no density.")
        given = torch.as_tensor(plain_array(action, "Actions"), device=self.device)
        return self._answer(lambda x: self.module.log_prob(x, given), observation)

    def _answer(self, function: Callable[[Observation], Tensor], observation: Any) -> np.ndarray:
        inputs = {name: torch.as_tensor(rows, device=self.device) for name, rows in raw_inputs(self.spec, observation).items()}
        with torch.no_grad():
            return function(module_input(self.spec, inputs)).cpu().numpy()

    def _acted(self, observation: Any) -> np.ndarray:
        def run(inputs: Mapping[str, Tensor]) -> tuple[np.ndarray]:
            with torch.no_grad():
                return (self.module(module_input(self.spec, inputs)).cpu().numpy(),)

        shown = raw_inputs(self.spec, observation)
        return in_pieces(run, {name: torch.as_tensor(rows, device=self.device) for name, rows in shown.items()})[0]


def _repeated(x: Tensor, n: int) -> Tensor:
    """Each row n times, one after the other; a trace follows the number of rows."""
    return x.unsqueeze(1).expand(-1, n, *[-1] * (x.ndim - 1)).reshape(-1, *x.shape[1:])


def module_input(spec: Spec, inputs: Mapping[str, Tensor]) -> Observation:
    """Make a policy module's input of inputs by name: a tensor, or a dict; `Masked` where the policy knows a mask."""
    names = space_columns(spec.observation)
    seen = inputs["observation"] if "observation" in names else {name.partition("/")[2]: inputs[name] for name in sorted(names)}
    return Masked(seen, inputs[ACTION_MASK]) if spec.action_mask else seen
