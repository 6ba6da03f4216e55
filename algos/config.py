"""Settings that algorithms share, and presets of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, model_validator

from ..data.augmentation import Augmentations
from ..data.config import Config, setting
from ..data.sampling_settings import Sampling
from ..data.scalers import ActionScaler, ObservationScaler, RewardScaler


def _rising(bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] >= bounds[1]:
        raise ValueError("the first bound must be below the second.")
    return bounds


Bounds = Annotated[tuple[float, float], AfterValidator(_rising)]
"""From where to where, as a setting."""


class TrainedConfig(Config):
    """Settings of all that is trained. Floats are coefficients: tensors while training runs, one a seed."""

    follows_rollouts: ClassVar[bool] = False  # whether all that it learns from is what it has just done

    batch_size: int = setting(256, "transitions in a gradient step", gt=0)
    observation_scaler: ObservationScaler | None = setting(
        None, "how observations are scaled: standard, min_max or pixel, online running; of a dict, one for each key"
    )
    augmentation: Augmentations = setting((), "how observations are changed at random while training: names or settings, in order")
    n_augmentations: int = setting(1, "copies of a batch, each augmented for itself; their losses are averaged", gt=0)
    matmul_precision: Literal["float32", "bfloat16", "tf32"] = setting(
        "float32",
        "what products are computed in while training: bfloat16 in encoders, tf32 (of GPUs) everywhere; parameters stay float32",
        formerly={"mixed_precision": {"float32": False, "bfloat16": True}},
    )

    @model_validator(mode="after")
    def _check_scalers(self) -> Self:
        for name in ("observation_scaler", "reward_scaler"):
            scaler = getattr(self, name, None)
            if scaler is not None and scaler.is_running and not self.follows_rollouts:
                raise ValueError(f"{name} 'running' is of algorithms that learn from rollouts, as PPO: say 'standard'.")
        return self

    def coefficients(self) -> dict[str, float]:
        """The settings that are floats, by name: what may change while training runs, and differ between rows of a stack."""
        return {name: value for name, value in self if isinstance(value, float)}


class SampledConfig(TrainedConfig):
    """Settings of what draws from data."""

    sampler: Sampling | None = setting(
        None, "how transitions are drawn: epoch, weighted, prioritized, stream, or uniform with its settings; None: uniform"
    )


class RewardedConfig(TrainedConfig):
    """Settings of what looks at rewards."""

    reward_scaler: RewardScaler | None = setting(
        None, "how each reward is scaled: standard, min_max, clip, multiply, constant_shift or return_based, online running"
    )


class DiscountedConfig(RewardedConfig):
    """Settings of what looks at returns."""

    gamma: float = setting(0.99, "γ: discount of one step", source="SAC, Table 1; the authors' code of TD3", ge=0, le=1)


class AlgorithmConfig(DiscountedConfig, SampledConfig):
    """Settings of algorithms that learn from returns, drawn from data: those of most."""

    td_steps: int = setting(1, "n of the n-step return", gt=0)


class ActionsConfig(TrainedConfig):
    """Settings of what has continuous actions."""

    action_scaler: ActionScaler | None = setting(
        None, "how actions are brought to [-1, 1]: min_max; None: they are there, or their space has bounds"
    )


class ContinuousConfig(AlgorithmConfig, ActionsConfig):
    """Settings of algorithms with continuous actions."""


_Config = TypeVar("_Config", bound=Config)


def sourced(source: str, *names: str) -> Callable[[type[_Config]], type[_Config]]:
    """Has a config say of inherited settings that their defaults are from `source`, which states the same values."""

    def say(config: type[_Config]) -> type[_Config]:
        for name in names:
            field = config.model_fields[name] = copy.copy(config.model_fields[name])  # the parent's own says on what it said
            field.json_schema_extra = {**(about if isinstance(about := field.json_schema_extra, dict) else {}), "source": source}
        return config

    return say


@dataclass(frozen=True)
class Preset:
    """A named set of values, and the paper, table or file that they come from."""

    source: str
    settings: Mapping[str, Any]
