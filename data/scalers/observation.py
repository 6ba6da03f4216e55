"""Observation scalers: `standard`, `min_max`, `pixel` and `running` for one array, and one of them for each key of a dict.

A policy carries them: what it is given stays raw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

import numpy as np
import torch
from pydantic import BeforeValidator, Field

from ..config import by_name, setting
from ..errors import ConfigError, DataError, did_you_mean
from ..spec import Box, Dict, ObservationSpace, flat_space
from .base import Affine, Scaler, Vector, inverse, is_wide, merged, to_unit, vector

if TYPE_CHECKING:
    from ..dataset import Dataset


class SingleScaler(Scaler):
    """Base of the scalers of one array."""

    def fit(self, dataset: Dataset) -> Any:
        """Fit on the dataset's statistics; for dict observations a `KeywiseScaler` with one such scaler a key."""
        found = self.for_space(dataset.spec.observation, dataset.name)
        return found.fit(dataset) if isinstance(found, KeywiseScaler) else self.with_statistics(dataset.statistics.observation)

    def for_space(self, space: ObservationSpace, name: str) -> ObservationScaler:
        """Return this scaler, or one for each key where observations are dicts. Raises DataError where it does not suit them."""
        if isinstance(flat := flat_space(space), Dict):
            return KeywiseScaler(scalers={key: cast("AnySingleScaler", self) for key in flat.spaces}).for_space(flat, name)
        if not isinstance(space, Box) or not self.suits(space):
            raise DataError(
                f"The observation scaler {self.label!r} needs {self.wants}, and {name!r} has observations of another kind."
            )
        return cast("ObservationScaler", self.begun(space))

    def begun(self, space: Box) -> Self:
        """Begin, before anything was seen of arrays of this space."""
        return self

    def after(self, columns: Mapping[str, np.ndarray]) -> Self:
        """Return the scaler once rows [N, ...] were seen, by column: what is running has other numbers then."""
        return self

    def affines(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> dict[str, Affine]:
        """Return the fitted scaler as tensors, by column: `observation`."""
        return {"observation": self.affine(dtype, device)}

    @property
    def wants(self) -> str:
        return "vectors"

    def suits(self, space: Box) -> bool:
        return len(space.shape) == 1

    def with_statistics(self, moments: Any) -> Self:
        """Return the scaler with what it takes from the statistics of its array; given numbers are kept."""
        raise NotImplementedError


class StandardScaler(SingleScaler):
    """(x - mean) / (std + epsilon), entry by entry; 1e-3 is what TD3+BC adds (Fujimoto and Gu 2021, section 4)."""

    name: Literal["standard"] = "standard"
    mean: Vector | None = setting(None, "mean of each entry; None: from the dataset")
    std: Vector | None = setting(None, "standard deviation of each entry; None: from the dataset")
    epsilon: float = setting(1e-3, "added to the standard deviation", source="TD3+BC, section 4", ge=0)

    def with_statistics(self, moments: Any) -> Self:
        return self.model_copy(update={"mean": self.mean or vector(moments.mean), "std": self.std or vector(moments.std)})

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        mean, std = self._fitted(self.mean, self.std)
        scale = inverse(std + self.epsilon)
        return scale, -mean * scale


class MinMaxScaler(SingleScaler):
    """To [-1, 1]: 2 (x - minimum) / (maximum - minimum) - 1, entry by entry.

    d3rlpy's manual of 2020 maps observations to [0, 1]; today's maps to [-1, 1], which is followed here.
    """

    name: Literal["min_max"] = "min_max"
    minimum: Vector | None = setting(None, "smallest value of each entry; None: from the dataset")
    maximum: Vector | None = setting(None, "largest value of each entry; None: from the dataset")

    def with_statistics(self, moments: Any) -> Self:
        return self.model_copy(
            update={"minimum": self.minimum or vector(moments.min), "maximum": self.maximum or vector(moments.max)}
        )

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return to_unit(*self._fitted(self.minimum, self.maximum))


class PixelScaler(SingleScaler):
    """x / 255."""

    name: Literal["pixel"] = "pixel"

    @property
    def wants(self) -> str:
        return "images"

    def suits(self, space: Box) -> bool:
        return len(space.shape) > 1 or space.dtype == "uint8"

    def with_statistics(self, moments: Any) -> Self:
        return self

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(1 / 255), np.asarray(0.0)


class RunningScaler(SingleScaler):
    """(x - mean) / (std + epsilon) of all that was seen while acting, entry by entry, cut off at ±clip.

    PFRL's `EmpiricalNormalization`, and its defaults (PFRL 0.4.0, nn/empirical_normalization.py; read, not copied).
    """

    name: Literal["running"] = "running"
    mean: Vector | None = setting(None, "mean of each entry so far; None: nothing was seen, which is as if it were 0")
    std: Vector | None = setting(None, "standard deviation of each entry so far; None: nothing was seen, which is as if it were 1")
    count: float = setting(0.0, "rows that were seen", ge=0)
    epsilon: float = setting(0.01, "added to the standard deviation", source="PFRL 0.4.0, EmpiricalNormalization", ge=0)
    clip: float | None = setting(None, "where what is scaled is cut off, above 0 and below; None: nowhere", gt=0)
    until: int | None = setting(None, "rows after which it stays as it is; None: it never does", gt=0)

    @property
    def is_running(self) -> bool:
        return True

    @property
    def limit(self) -> float:
        return math.inf if self.clip is None else self.clip

    def begun(self, space: Box) -> Self:
        n = math.prod(space.shape)
        return self.model_copy(update={"mean": self.mean or (0.0,) * n, "std": self.std or (1.0,) * n})

    def after(self, columns: Mapping[str, np.ndarray]) -> Self:
        if self.until is not None and self.count >= self.until:
            return self
        mean, std = self._fitted(self.mean, self.std)
        count, mean, variance = merged((self.count, mean, np.square(std)), columns["observation"])
        return self.model_copy(update={"count": float(count), "mean": vector(mean), "std": vector(np.sqrt(variance))})

    def with_statistics(self, moments: Any) -> Self:
        raise ConfigError("The observation scaler 'running' follows what is seen while acting: data have 'standard'.")

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        mean, std = self._fitted(self.mean, self.std)
        scale = inverse(std + self.epsilon)
        return scale, -mean * scale


_KNOWN = (StandardScaler, MinMaxScaler, PixelScaler, RunningScaler)
AnySingleScaler = Annotated[
    Annotated[StandardScaler | MinMaxScaler | PixelScaler | RunningScaler, Field(discriminator="name")],
    BeforeValidator(by_name("scaler", _KNOWN)),
]


class KeywiseScaler(Scaler):
    """A scaler for each key of dict observations; keys that are not named are only brought to the float type.

    Nested keys are joined by "/", and the parts of a tuple are "0", "1", …, as the columns `observation/KEY` are named.
    """

    name: Literal["keys"] = "keys"
    scalers: dict[str, AnySingleScaler] = setting(..., "scaler of each key", min_length=1)

    def fit(self, dataset: Dataset) -> Self:
        self.for_space(dataset.spec.observation, dataset.name)
        moments = cast("Mapping[str, Any]", dataset.statistics.observation)
        return self.model_copy(update={"scalers": {key: s.with_statistics(moments[key]) for key, s in self.scalers.items()}})

    def for_space(self, space: ObservationSpace, name: str) -> Self:
        """Return this scaler. Raises DataError where observations have no such key, or a key's scaler does not suit it."""
        if not isinstance(flat := flat_space(space), Dict):
            raise DataError(f"The observation scaler names {', '.join(self.scalers)}, and observations of {name!r} have no keys.")
        for key, scaler in self.scalers.items():
            if key not in flat.spaces:
                raise DataError(f"Observations of {name!r} have no key {key!r} to scale{did_you_mean(key, flat.spaces)}")
            if not isinstance(leaf := flat.spaces[key], Box) or not scaler.suits(leaf):
                raise DataError(
                    f"The observation scaler {scaler.label!r} needs {scaler.wants}, and {key!r} of {name!r} is something else: "
                    "give each key that is scaled its own, as {camera: pixel, state: standard}."
                )
        begun = {key: scaler.begun(cast("Box", flat.spaces[key])) for key, scaler in self.scalers.items()}
        return self.model_copy(update={"scalers": begun})

    @property
    def is_running(self) -> bool:
        return any(scaler.is_running for scaler in self.scalers.values())

    def after(self, columns: Mapping[str, np.ndarray]) -> Self:
        now = {key: scaler.after({"observation": columns[f"observation/{key}"]}) for key, scaler in self.scalers.items()}
        return self.model_copy(update={"scalers": now})

    def affines(self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> dict[str, Affine]:
        """Return the fitted scalers as tensors, by column: `observation/KEY`."""
        return {f"observation/{key}": scaler.affine(dtype, device) for key, scaler in self.scalers.items()}

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        raise ConfigError("A scaler by keys has numbers for each key: ask those in `scalers`.")

    def _mapped(self, x: Any, *, reverse: bool) -> Any:
        def one(key: str, part: Any) -> Any:
            scaler = self.scalers.get(key)
            if scaler is None:
                return torch.as_tensor(part)
            return scaler.reverse_transform(part) if reverse else scaler.transform(part)

        return {key: one(key, part) for key, part in x.items()}


def observation_affines(
    scaler: Any, kinds: Mapping[str, Any], dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> dict[str, Affine]:
    """Return a fitted scaler of observations (None: there is none) as tensors, by column; `kinds` are the columns' NumPy types.

    They are in `dtype`, but in float64 for columns that are kept as float64 or as large integers: of a time in seconds since 1970
    the mean is then taken away before anything is rounded. Whoever scales brings the result to `dtype`.
    """
    if scaler is None:
        return {}
    found: dict[str, Affine] = scaler.affines(dtype, device)
    exact: dict[str, Affine] = scaler.affines(torch.float64, device)
    return {name: exact[name] if name in kinds and is_wide(kinds[name]) else affine for name, affine in found.items()}


def _read(value: Any) -> Any:
    """Read a name, settings (a mapping with "name"), a mapping from keys to such, or a list of them for a tuple's parts."""
    if isinstance(value, list | tuple):
        parts = cast("Sequence[Any]", value)
        return {"name": "keys", "scalers": {str(k): part for k, part in enumerate(parts) if part is not None}}
    if not isinstance(value, Mapping):
        return by_name("scaler", _KNOWN)(value)
    settings = cast("Mapping[str, Any]", value)
    return settings if "name" in settings else {"name": "keys", "scalers": _joined(settings)}


def _joined(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, part in settings.items():
        if isinstance(part, Mapping) and "name" not in part:
            found |= _joined(cast("Mapping[str, Any]", part), f"{above}{key}/")
        elif part is not None:
            found[f"{above}{key}"] = part
    return found


ObservationScaler = Annotated[
    Annotated[StandardScaler | MinMaxScaler | PixelScaler | RunningScaler | KeywiseScaler, Field(discriminator="name")],
    BeforeValidator(_read),
]
