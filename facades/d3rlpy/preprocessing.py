"""d3rlpy's `preprocessing`: scalers by their names. Statistics that are not given are those of the data that are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import TypeAdapter

from d3ray.data import scalers

from .parts import Part
from .settings import action_scaler, observation_scaler, reward_scaler


class _Transforms(Part):
    """What has numbers transforms numbers by itself, as d3ray's scaler of the same settings does."""

    def _native(self) -> Any:
        raise NotImplementedError

    def transform_numpy(self, x: Any) -> Any:
        """Numbers as networks see them. Raises ConfigError where its statistics are not known yet."""
        return self._native().transform(x)

    def reverse_transform_numpy(self, x: Any) -> Any:
        """The way back."""
        return self._native().reverse_transform(x)

    transform, reverse_transform = transform_numpy, reverse_transform_numpy


class ObservationScaler(_Transforms):
    """Base of the scalers of observations."""

    def _native(self) -> Any:
        return TypeAdapter(scalers.ObservationScaler).validate_python(observation_scaler(self.kind, self.serialize_to_dict()))


class ActionScaler(_Transforms):
    """Base of the scalers of actions."""

    def _native(self) -> Any:
        return TypeAdapter(scalers.ActionScaler).validate_python(action_scaler(self.kind, self.serialize_to_dict()))


class RewardScaler(_Transforms):
    """Base of the scalers of rewards."""

    def _native(self) -> Any:
        return TypeAdapter(scalers.RewardScaler).validate_python(reward_scaler(self.kind, self.serialize_to_dict()))


@dataclass
class PixelObservationScaler(ObservationScaler):
    """Bytes over 255."""

    kind: ClassVar = "pixel"


@dataclass
class MinMaxObservationScaler(ObservationScaler):
    """To [-1, 1]."""

    minimum: Any = None
    maximum: Any = None
    kind: ClassVar = "min_max"


@dataclass
class StandardObservationScaler(ObservationScaler):
    """(x - mean) / (std + eps)."""

    mean: Any = None
    std: Any = None
    eps: float = 1e-3
    kind: ClassVar = "standard"


@dataclass
class MinMaxActionScaler(ActionScaler):
    """To [-1, 1]."""

    minimum: Any = None
    maximum: Any = None
    kind: ClassVar = "min_max"


@dataclass
class MultiplyRewardScaler(RewardScaler):
    """r times `multiplier`."""

    multiplier: float = 1.0
    kind: ClassVar = "multiply"


@dataclass
class ClipRewardScaler(RewardScaler):
    """r between `low` and `high`, times `multiplier`."""

    low: float | None = None
    high: float | None = None
    multiplier: float = 1.0
    kind: ClassVar = "clip"


@dataclass
class MinMaxRewardScaler(RewardScaler):
    """To [0, 1], times `multiplier`."""

    minimum: float | None = None
    maximum: float | None = None
    multiplier: float = 1.0
    kind: ClassVar = "min_max"


@dataclass
class StandardRewardScaler(RewardScaler):
    """(r - mean) / (std + eps), times `multiplier`."""

    mean: float | None = None
    std: float | None = None
    eps: float = 1e-3
    multiplier: float = 1.0
    kind: ClassVar = "standard"


@dataclass
class ReturnBasedRewardScaler(RewardScaler):
    """r over the range of the data's returns, times `multiplier`."""

    return_max: float | None = None
    return_min: float | None = None
    multiplier: float = 1.0
    kind: ClassVar = "return"


@dataclass
class ConstantShiftRewardScaler(RewardScaler):
    """r + `shift`, times `multiplier`."""

    shift: float
    multiplier: float = 1.0
    kind: ClassVar = "shift"


# Names of d3rlpy's first versions.
PixelScaler, MinMaxScaler, StandardScaler = PixelObservationScaler, MinMaxObservationScaler, StandardObservationScaler
OBSERVATION = {one.kind: one for one in (PixelObservationScaler, MinMaxObservationScaler, StandardObservationScaler)}
ACTION = {MinMaxActionScaler.kind: MinMaxActionScaler}
REWARD = {
    **{one.kind: one for one in (MultiplyRewardScaler, ClipRewardScaler, MinMaxRewardScaler, StandardRewardScaler)},
    "return_based": ReturnBasedRewardScaler,
}
