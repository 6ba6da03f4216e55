"""Scalers: how raw observations, actions and rewards become what a network learns from, and back.

Scalers of observations and actions are affine once they are fitted, so a fitted one is two arrays and the exported policy carries
them. Those of rewards are a clip and an affine map, and belong to training alone. All are fitted from the statistics that a
dataset's manifest has, so fitting reads no data. What has no spread (a constant entry) `min_max` shifts and does not divide;
`standard` divides it by its epsilon, so that any later change is multiplied by 1,000, unless epsilon is 0.
"""

from .action import ActionScaler, MinMaxActionScaler
from .base import Affine, Scaler, index_affines, is_wide
from .observation import (
    KeywiseScaler,
    MinMaxScaler,
    ObservationScaler,
    PixelScaler,
    RunningScaler,
    StandardScaler,
    observation_affines,
)
from .reward import (
    ClipRewardScaler,
    ConstantShiftRewardScaler,
    MinMaxRewardScaler,
    MultiplyRewardScaler,
    ReturnBasedRewardScaler,
    RewardScaler,
    RewardTransform,
    RunningRewardScaler,
    StandardRewardScaler,
)

__all__ = [
    "ActionScaler",
    "Affine",
    "ClipRewardScaler",
    "ConstantShiftRewardScaler",
    "KeywiseScaler",
    "MinMaxActionScaler",
    "MinMaxRewardScaler",
    "MinMaxScaler",
    "MultiplyRewardScaler",
    "ObservationScaler",
    "PixelScaler",
    "ReturnBasedRewardScaler",
    "RewardScaler",
    "RewardTransform",
    "RunningRewardScaler",
    "RunningScaler",
    "Scaler",
    "StandardRewardScaler",
    "StandardScaler",
    "index_affines",
    "is_wide",
    "observation_affines",
]
