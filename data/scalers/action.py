"""The action scaler: actions to [-1, 1], where continuous policies act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
from pydantic import BeforeValidator

from ..config import by_name, setting
from ..errors import DataError
from ..spec import Box
from .base import Scaler, Vector, to_unit, vector

if TYPE_CHECKING:
    from ..dataset import Dataset


class MinMaxActionScaler(Scaler):
    """Actions to [-1, 1], from the action space's bounds where they are finite, else from the data's smallest and largest."""

    name: Literal["min_max"] = "min_max"
    minimum: Vector | None = setting(
        None, "smallest value of each entry; None: from the space if it is bounded, else from the data"
    )
    maximum: Vector | None = setting(None, "largest value of each entry; None: from the space if it is bounded, else from the data")

    def fit_space(self, space: Box) -> Self:
        """Take the bounds of the space where it has finite ones; else stay as it is."""
        bounds = space.bounds()
        return self if bounds is None or not all(np.isfinite(b).all() for b in bounds) else self._with(*map(vector, bounds))

    def fit(self, dataset: Dataset) -> Self:
        space = dataset.spec.action
        if not isinstance(space, Box):
            raise DataError(f"The action scaler {self.label!r} needs continuous actions, and {dataset.name!r} has discrete ones.")
        if None not in ((fitted := self.fit_space(space)).minimum, fitted.maximum):
            return fitted
        statistics = dataset.statistics.action
        if statistics is None:
            raise DataError(f"The dataset {dataset.name!r} has no statistics of its actions to scale them by.")
        return self._with(vector(statistics.min), vector(statistics.max))

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return to_unit(*self._fitted(self.minimum, self.maximum))

    def _with(self, minimum: Vector, maximum: Vector) -> Self:
        return self.model_copy(update={"minimum": self.minimum or minimum, "maximum": self.maximum or maximum})


ActionScaler = Annotated[MinMaxActionScaler, BeforeValidator(by_name("scaler", (MinMaxActionScaler,)))]
