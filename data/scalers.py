"""Scalers: how raw observations and actions become what a network sees, and back.

Every scaler here is affine once it is fitted, so a fitted scaler is two arrays and the exported policy carries them.
Observations and actions without spread (a constant entry) are shifted and not divided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from .config import Config, setting
from .errors import ConfigError, DataError, did_you_mean
from .spec import Box

if TYPE_CHECKING:
    from .dataset import Dataset

Vector = tuple[float, ...]


@dataclass(frozen=True)
class Affine:
    """x · scale + shift, entry by entry. `scale` and `shift` broadcast against [..., *shape]."""

    scale: Tensor
    shift: Tensor

    def transform(self, x: Tensor) -> Tensor:
        """Raw [..., *shape] of any type to scaled floats."""
        return torch.addcmul(self.shift, x.to(self.scale.dtype), self.scale)

    def reverse(self, x: Tensor) -> Tensor:
        """Scaled floats back to raw units."""
        return (x - self.shift) / self.scale


class Scaler(Config):
    """Base of the scalers: settings as written by the user, with numbers once fitted."""

    @property
    def label(self) -> str:
        """The name that a config gives."""
        return str(getattr(self, "name"))  # noqa: B009 - subclasses narrow it to one literal

    def fit(self, dataset: Dataset) -> Self:
        """The same scaler with what it takes from the dataset's statistics; given numbers are kept."""
        raise NotImplementedError

    def affine(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Affine:
        """The fitted scaler as tensors."""
        scale, shift = self.numbers()
        return Affine(*(torch.tensor(part, dtype=torch.float64).to(device, dtype) for part in (scale, shift)))

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Scale and shift in float64. Raises ConfigError before `fit`."""
        raise NotImplementedError

    def _fitted(self, *values: Vector | None) -> list[np.ndarray]:
        if any(value is None for value in values):
            raise ConfigError(f"The scaler {self.label!r} has no numbers yet: fit it on a dataset first.")
        return [np.asarray(value, np.float64) for value in values]


class StandardScaler(Scaler):
    """(x - mean) / (std + epsilon), entry by entry; 1e-3 is what TD3+BC adds (Fujimoto and Gu 2021, section 4)."""

    name: Literal["standard"] = "standard"
    mean: Vector | None = setting(None, "mean of each entry; None: from the dataset")
    std: Vector | None = setting(None, "standard deviation of each entry; None: from the dataset")
    epsilon: float = setting(1e-3, "added to the standard deviation", source="TD3+BC, section 4", ge=0)

    def fit(self, dataset: Dataset) -> Self:
        statistics = _observation_statistics(dataset, self.label)
        return self.model_copy(update={"mean": self.mean or _vector(statistics.mean), "std": self.std or _vector(statistics.std)})

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        mean, std = self._fitted(self.mean, self.std)
        spread = std + self.epsilon
        scale = 1 / np.where(spread > 0, spread, 1.0)
        return scale, -mean * scale


class MinMaxScaler(Scaler):
    """To [-1, 1]: 2 (x - minimum) / (maximum - minimum) - 1, entry by entry.

    d3rlpy's manual of 2020 maps observations to [0, 1]; today's maps to [-1, 1], which is followed here.
    """

    name: Literal["min_max"] = "min_max"
    minimum: Vector | None = setting(
        None, "smallest value of each entry; None: from the space if it is bounded, else from the data"
    )
    maximum: Vector | None = setting(None, "largest value of each entry; None: from the space if it is bounded, else from the data")

    def fit(self, dataset: Dataset) -> Self:
        statistics = _observation_statistics(dataset, self.label)
        return self._with(_vector(statistics.min), _vector(statistics.max))

    def _with(self, minimum: Vector, maximum: Vector) -> Self:
        return self.model_copy(update={"minimum": self.minimum or minimum, "maximum": self.maximum or maximum})

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = self._fitted(self.minimum, self.maximum)
        half = (high - low) / 2
        scale = 1 / np.where(half > 0, half, 1.0)
        return scale, -(low + high) / 2 * scale


class MinMaxActionScaler(MinMaxScaler):
    """Actions to [-1, 1], from the action space's bounds where they are finite, else from the data's smallest and largest."""

    def fit_space(self, space: Box) -> Self:
        """The bounds of the space where it has finite ones; else the scaler as it is."""
        bounds = space.bounds()
        return self if bounds is None or not all(np.isfinite(b).all() for b in bounds) else self._with(*map(_vector, bounds))

    def fit(self, dataset: Dataset) -> Self:
        space = dataset.spec.action
        if not isinstance(space, Box):
            raise DataError(f"The action scaler {self.label!r} needs continuous actions, and {dataset.name!r} has discrete ones.")
        if (fitted := self.fit_space(space)).minimum is not None:
            return fitted
        statistics = dataset.statistics.action
        if statistics is None:
            raise DataError(f"The dataset {dataset.name!r} has no statistics of its actions to scale them by.")
        return self._with(_vector(statistics.min), _vector(statistics.max))


class PixelScaler(Scaler):
    """x / 255."""

    name: Literal["pixel"] = "pixel"

    def fit(self, dataset: Dataset) -> Self:
        return self

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return np.float64(1 / 255), np.float64(0.0)  # pyright: ignore[reportReturnType]


def _named(known: tuple[type[Scaler], ...]) -> Callable[[Any], Any]:
    """A string stands for the scaler of that name with its defaults."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        names = {str(scaler.model_fields["name"].default): scaler for scaler in known}
        if value not in names:
            raise ValueError(f"there is no such scaler{did_you_mean(value, names)}")
        return names[value]()

    return read


ObservationScaler = Annotated[
    Annotated[StandardScaler | MinMaxScaler | PixelScaler, Field(discriminator="name")],
    BeforeValidator(_named((StandardScaler, MinMaxScaler, PixelScaler))),
]
ActionScaler = Annotated[MinMaxActionScaler, BeforeValidator(_named((MinMaxActionScaler,)))]


def _vector(values: Any) -> Vector:
    return tuple(float(v) for v in np.asarray(values, np.float64).reshape(-1))


def _observation_statistics(dataset: Dataset, name: str) -> Any:
    space = dataset.spec.observation
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise DataError(f"The observation scaler {name!r} needs vectors, and {dataset.name!r} has observations of another kind.")
    return dataset.statistics.observation
