"""Reward scalers: r to scale · clip(r, low, high) + shift, on each reward, before the n-step sum.

    standard         m (r - mean) / (std + ε)
    min_max          m (r - minimum) / (maximum - minimum)
    clip             m clip(r, low, high)
    multiply         m r
    constant_shift   r + shift
    return_based     m r / (return_max - return_min)
    running          clip(r / √(variance + ε)), of the discounted sums of rewards while acting

m is `multiplier`. They belong to training: values and losses are in scaled units, a policy holds none of it, and the returns of
an evaluation are raw. Names and forms are d3rlpy 2.8.1's (preprocessing/reward_scalers.py; read, not copied).

Rewards without spread are shifted and not divided, but by ε in `standard`; returns without range are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

import numpy as np
import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor

from ..config import by_name, setting
from ..errors import ConfigError, DataError
from .base import Scaler, inverse, merged

if TYPE_CHECKING:
    from ..dataset import Dataset

_MULTIPLIER = "m: multiplies the scaled reward"
_D3RLPY = "d3rlpy 2.8.1"


@dataclass(frozen=True)
class RewardTransform:
    """clip(r, low, high) · scale + shift: numbers, so that it runs on any device and in any float type."""

    scale: float
    shift: float
    low: float = -math.inf
    high: float = math.inf

    def transform(self, reward: Tensor) -> Tensor:
        """Scale raw rewards, floats of any shape."""
        if self.low > -math.inf or self.high < math.inf:
            reward = reward.clamp(self.low, self.high)
        return reward * self.scale + self.shift

    def reverse(self, reward: Tensor) -> Tensor:
        """Bring scaled rewards back; what was clipped stays clipped."""
        return (reward - self.shift) / self.scale


class RewardScalerBase(Scaler):
    """Base of the reward scalers."""

    def reward_transform(self) -> RewardTransform:
        """Return the fitted scaler. Raises ConfigError before `fit`."""
        scale, shift = self.numbers()
        return RewardTransform(float(scale), float(shift))

    def fit(self, dataset: Dataset) -> Self:
        return self

    def _mapped(self, x: Any, *, reverse: bool) -> Any:
        x = torch.as_tensor(x)
        x = x if x.is_floating_point() else x.to(torch.float32)
        found = self.reward_transform()
        return found.reverse(x) if reverse else found.transform(x)


class StandardRewardScaler(RewardScalerBase):
    """m (r - mean) / (std + ε)."""

    name: Literal["standard"] = "standard"
    mean: float | None = setting(None, "mean reward; None: from the dataset")
    std: float | None = setting(None, "standard deviation of the rewards; None: from the dataset", ge=0)
    epsilon: float = setting(1e-3, "ε: added to the standard deviation", source=_D3RLPY, ge=0)
    multiplier: float = setting(1.0, _MULTIPLIER, source=_D3RLPY, gt=0)

    def fit(self, dataset: Dataset) -> Self:
        found = dataset.statistics.reward
        return self.model_copy(update={"mean": _first(self.mean, found.mean), "std": _first(self.std, found.std)})

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        mean, std = self._fitted(self.mean, self.std)
        scale = self.multiplier * inverse(std + self.epsilon)
        return scale, -mean * scale


class MinMaxRewardScaler(RewardScalerBase):
    """m (r - minimum) / (maximum - minimum): to [0, m]."""

    name: Literal["min_max"] = "min_max"
    minimum: float | None = setting(None, "smallest reward; None: from the dataset")
    maximum: float | None = setting(None, "largest reward; None: from the dataset")
    multiplier: float = setting(1.0, _MULTIPLIER, source=_D3RLPY, gt=0)

    def fit(self, dataset: Dataset) -> Self:
        found = dataset.statistics.reward
        return self.model_copy(update={"minimum": _first(self.minimum, found.min), "maximum": _first(self.maximum, found.max)})

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = self._fitted(self.minimum, self.maximum)
        scale = self.multiplier * inverse(high - low)
        return scale, -low * scale


class ClipRewardScaler(RewardScalerBase):
    """m clip(r, low, high)."""

    name: Literal["clip"] = "clip"
    low: float = setting(-1.0, "smallest reward that is let through", source="Mnih et al. 2015, Methods")
    high: float = setting(1.0, "largest reward that is let through", source="Mnih et al. 2015, Methods")
    multiplier: float = setting(1.0, _MULTIPLIER, source=_D3RLPY, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low is {self.low:g} and must be less than high, which is {self.high:g}")
        return self

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.multiplier), np.asarray(0.0)

    def reward_transform(self) -> RewardTransform:
        return RewardTransform(self.multiplier, 0.0, self.low, self.high)


class MultiplyRewardScaler(RewardScalerBase):
    """m r."""

    name: Literal["multiply"] = "multiply"
    multiplier: float = setting(..., _MULTIPLIER, gt=0)

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.multiplier), np.asarray(0.0)


class ConstantShiftRewardScaler(RewardScalerBase):
    """r + shift. A shift of -1 is what CQL's and IQL's code trains antmaze with."""

    name: Literal["constant_shift"] = "constant_shift"
    shift: float = setting(..., "added to each reward")

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(1.0), np.asarray(self.shift)


class ReturnBasedRewardScaler(RewardScalerBase):
    """m r / (return_max - return_min): the data's returns then span m.

    IQL's and CORL's form for MuJoCo, where m is the time limit of 1000 steps; d3rlpy's default of m is 1. Returns are undiscounted,
    of all episodes; CORL leaves out the last one where the data stop before it ends.
    """

    name: Literal["return_based"] = "return_based"
    return_max: float | None = setting(None, "largest return of an episode; None: from the dataset")
    return_min: float | None = setting(None, "smallest return of an episode; None: from the dataset")
    multiplier: float = setting(1000.0, _MULTIPLIER, source="IQL's and CORL's code, max_episode_steps", gt=0)

    def fit(self, dataset: Dataset) -> Self:
        found = dataset.statistics.return_
        high, low = _first(self.return_max, found.max), _first(self.return_min, found.min)
        if low >= high:
            raise DataError(
                f"The reward scaler {self.label!r} divides by the range of returns, {low:g} to {high:g} in {dataset.name!r}."
            )
        return self.model_copy(update={"return_max": high, "return_min": low})

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.return_max is not None and self.return_min is not None and self.return_min >= self.return_max:
            raise ValueError(f"return_min is {self.return_min:g} and must be less than return_max, which is {self.return_max:g}")
        return self

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        high, low = self._fitted(self.return_max, self.return_min)
        return self.multiplier / (high - low), np.asarray(0.0)


class RunningRewardScaler(RewardScalerBase):
    """r / √(variance + ε), cut off at ±clip; the variance is that of G ← γ G + r over all steps of acting so far.

    Rewards are not centred, for that would change what the best policy is.
    """

    name: Literal["running"] = "running"
    mean: float = setting(0.0, "mean of G so far")
    variance: float = setting(1.0, "variance of G so far", ge=0)
    count: float = setting(0.0, "steps that were seen", ge=0)
    epsilon: float = setting(1e-8, "ε: added to the variance", source="gymnasium, wrappers.NormalizeReward", ge=0)
    clip: float | None = setting(10.0, "where scaled rewards are cut off", source="Huang et al. 2022, detail 4 of MuJoCo", gt=0)

    @property
    def is_running(self) -> bool:
        return True

    def after(self, sums: np.ndarray) -> Self:
        """Return the scaler once discounted sums [N] were seen."""
        count, mean, variance = merged((self.count, np.asarray(self.mean), np.asarray(self.variance)), sums)
        return self.model_copy(update={"count": float(count), "mean": float(mean), "variance": float(variance)})

    def fit(self, dataset: Dataset) -> Self:
        raise ConfigError("The reward scaler 'running' follows what is paid while acting: data have 'standard'.")

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(1 / math.sqrt(self.variance + self.epsilon)), np.asarray(0.0)

    def reward_transform(self) -> RewardTransform:
        scale = float(self.numbers()[0])
        limit = math.inf if self.clip is None else self.clip / scale
        return RewardTransform(scale, 0.0, -limit, limit)


_Known = (
    StandardRewardScaler
    | MinMaxRewardScaler
    | ClipRewardScaler
    | MultiplyRewardScaler
    | ConstantShiftRewardScaler
    | ReturnBasedRewardScaler
    | RunningRewardScaler
)
RewardScaler = Annotated[_Known, Field(discriminator="name"), BeforeValidator(by_name("scaler", get_args(_Known)))]


def _first(given: float | None, found: Any) -> float:
    return float(found) if given is None else given
