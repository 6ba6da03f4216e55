"""A check that the float type of networks tells the observations of a dataset apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...data.dataset import Dataset
from ...data.errors import DataError, advised
from ...data.scalers import KeywiseScaler, MinMaxScaler, StandardScaler, is_wide
from ...data.spec import Box, space_columns
from ...data.storage.checks import too_close
from ..definition import Definition


def check_resolution(algorithm: Definition, config: Any, dataset: Dataset) -> None:
    """Refuses observations whose spread gets lost beside their size, as that of a time in seconds since 1970 does in float32.

    What a scaler shifts is let through where its column is float64, or whole numbers: it is shifted before it is rounded. So are
    spreads below 0.001, which scalers take for none either.

    Raises:
        DataError: the standard deviation of an entry is smaller than the step from one float32 to the next there.
    """
    if algorithm.dtype == "float64":
        return
    measured = dataset.statistics.observation
    for column, leaf in space_columns(dataset.spec.observation).items():
        if not isinstance(leaf, Box) or not (is_wide(leaf.dtype) or leaf.dtype == "float32"):
            continue
        moments = measured[column.partition("/")[2]] if isinstance(measured, Mapping) else measured
        std, low, high = (np.atleast_1d(np.asarray(part, np.float64)) for part in (moments.std, moments.min, moments.max))
        lost = too_close(std, low, high)
        if not lost.any() or (is_wide(leaf.dtype) and not algorithm.models_dynamics and _is_shifted(config, column)):
            continue
        k = int(lost.argmax())
        what = "observations" if column == "observation" else column
        entry = f", entry {k}," if len(std) > 1 else ""
        if algorithm.models_dynamics or not is_wide(leaf.dtype):
            kept = "" if is_wide(leaf.dtype) else " before they are made float32, or import them with keep_float64"
            cure, mends = f"subtract an offset from them{kept}", dict[str, Any]()
        else:
            cure = f"set {advised('observation_scaler', 'standard')}, which subtracts their mean in float64, or "
            cure += f"{advised('dtype', 'float64')}, or subtract an offset from them"
            mends = {"observation_scaler": "standard"}
        raise DataError(
            f"{what} of {dataset.name!r}{entry} reach {max(abs(low[k]), abs(high[k])):.6g} with a standard deviation of "
            f"{std[k]:.3g}, and float32 cannot tell numbers apart there: {cure}.",
            mends=mends,
        )


def _is_shifted(config: Any, column: str) -> bool:
    scaler = config.observation_scaler
    if isinstance(scaler, KeywiseScaler):
        scaler = scaler.scalers.get(column.partition("/")[2])
    return isinstance(scaler, StandardScaler | MinMaxScaler)
