"""Settings that algorithms share, and presets of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..data.config import Config, setting
from ..data.scalers import ActionScaler, ObservationScaler


class AlgorithmConfig(Config):
    """Settings that every algorithm has. Floats are coefficients: tensors while training runs, one a seed."""

    batch_size: int = setting(256, "transitions in a gradient step", gt=0)
    gamma: float = setting(0.99, "γ: discount of one step", ge=0, le=1)
    td_steps: int = setting(1, "n of the n-step return", gt=0)
    observation_scaler: ObservationScaler | None = setting(None, "how observations are scaled: standard, min_max or pixel")


class ContinuousConfig(AlgorithmConfig):
    """Settings of algorithms with continuous actions."""

    action_scaler: ActionScaler | None = setting(None, "how actions are brought to [-1, 1]: min_max; None: they are there already")


@dataclass(frozen=True)
class Preset:
    """A named set of values, and the paper, table or file that they come from."""

    source: str
    settings: Mapping[str, Any]
