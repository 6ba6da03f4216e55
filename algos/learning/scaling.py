"""Raw observations, actions and rewards as the networks of a fit see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...data.masks import Masked
from ...data.scalers import Affine, index_affines, observation_affines
from ...data.spec import Box, Leaf, Spec, space_columns

Bounds = tuple[Tensor, Tensor]
_ROUNDING = 1e-6  # share of a policy's reach that says nothing


class Scaling:
    """The fitted scalers of a config, as affine maps on a device, and what kinds are counted from.

    Attributes:
        observation_affines: By column.
        action_affine: Of continuous actions where they are scaled, of discrete ones where they do not begin at 0.
        bounds: Smallest and largest raw action [A], where what acts in [-1, 1] leaves its space; else None.
    """

    def __init__(self, config: Any, spec: Spec, dtype: torch.dtype, device: torch.device) -> None:
        self.spec, self.dtype, self.device = spec, dtype, device
        scaler, action_scaler = config.observation_scaler, getattr(config, "action_scaler", None)
        self._kinds = {name: leaf.dtype for name, leaf in space_columns(spec.observation).items() if isinstance(leaf, Box)}
        counted = index_affines(spec, device)
        scaled = action_scaler.affine(dtype, device) if action_scaler else None
        self.action_affine: Affine | None = counted.pop("action", scaled)
        self.observation_affines = observation_affines(scaler, self._kinds, dtype, device) | counted
        self.bounds = left_bounds(spec.action, action_scaler, dtype, device)  # once: a policy is made at every prediction
        self._reward = getattr(config, "reward_scaler", None)

    def follow(self, scaler: Any) -> None:
        """Scales observations by the numbers that a scaler has now; so does whatever was made with the old ones."""
        for name, affine in observation_affines(scaler, self._kinds, self.dtype, self.device).items():
            self.observation_affines[name].become(affine)

    def affines(self) -> dict[str, Affine]:
        """Gives the affine maps of a policy: `action`, and `observation` or `observation/KEY`, as far as there are some."""
        return self.observation_affines | ({"action": self.action_affine} if self.action_affine else {})

    def observation(self, x: Any) -> Any:
        """Raw observations, arrays or a dict of them, scaled; their masks as bools."""
        if isinstance(x, Masked):
            return Masked(self.observation(x.observation), self._here(x.action_mask).bool())
        if isinstance(x, Mapping):
            return {key: self._scaled(f"observation/{key}", part) for key, part in x.items()}
        return self._scaled("observation", x)

    def _scaled(self, column: str, x: Any) -> Tensor:
        raw, affine = self._here(x), self.observation_affines.get(column)
        return (affine.transform(raw) if affine else raw).to(self.dtype)

    def _here(self, x: Any) -> Tensor:
        return x.to(self.device) if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x), device=self.device)

    def action(self, action: Any) -> Tensor:
        raw = self._here(action)
        if self.action_affine:
            return self.action_affine.transform(raw)
        return raw.to(torch.int64 if self.spec.discrete else self.dtype)

    def raw_observation(self, observation: Tensor) -> Tensor:
        """Scaled vectors as they were shown."""
        affine = self.observation_affines.get("observation")
        return affine.reverse(observation).to(self.dtype) if affine else observation

    def raw_action(self, action: Tensor) -> Tensor:
        return self.action_affine.reverse(action) if self.action_affine else action

    def raw_reward(self, reward: Tensor) -> Tensor:
        """Scaled rewards as they were paid; what was clipped stays so."""
        return self._reward.reward_transform().reverse(reward) if self._reward else reward

    def scaled_reward(self, reward: Tensor) -> Tensor:
        return self._reward.reward_transform().transform(reward) if self._reward else reward

    def reward(self, reward: np.ndarray) -> np.ndarray:
        return self._reward.transform(reward).numpy() if self._reward else reward

    @property
    def return_scale(self) -> float:
        """The factor of returns, as networks see them."""
        return self._reward.reward_transform().scale if self._reward else 1.0


def left_bounds(space: Leaf, scaler: Any, dtype: torch.dtype, device: torch.device) -> Bounds | None:
    """Bounds [A] of a space of actions, if what acts in [-1, 1] leaves it, be it by rounding; else None."""
    if not isinstance(space, Box) or (bounds := space.bounds()) is None:
        return None
    low, high = (torch.from_numpy(bound.reshape(-1).copy()) for bound in bounds)
    least, most = _reach(scaler, low, torch.float64)
    beyond = torch.maximum(low - least, most - high) > _ROUNDING * (most - least)
    least, most = _reach(scaler, low, dtype)
    rounded = (least < low.to(dtype)) | (most > high.to(dtype))
    return (low.to(device, dtype), high.to(device, dtype)) if bool((beyond | rounded).any()) else None


def _reach(scaler: Any, like: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The smallest and the largest raw action [A] that what acts in [-1, 1] takes, as it is reckoned in a type."""
    ends = torch.stack((-torch.ones_like(like), torch.ones_like(like))).to(dtype)
    reach = ends if scaler is None else scaler.affine(dtype).reverse(ends)
    return reach.amin(0), reach.amax(0)
