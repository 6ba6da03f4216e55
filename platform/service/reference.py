"""What a policy learned from, to hold observations against: the range of each entry, and a sample to be near to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ...data.dataset import Dataset
from ...data.drift.nearest import Nearest
from ...data.errors import ConfigError
from ...data.seeds import many_integers, root_key
from ...data.spec import Spec, shapes_of, space_columns


class Reference:
    """Observations of a dataset.

    Args:
        sample: Some of them by column, [k, ...].
        low, high: By column the smallest and largest value of each entry, or of all, which broadcast.
        deviation: By column the standard deviation, likewise.
    """

    def __init__(
        self,
        sample: Mapping[str, np.ndarray],
        low: Mapping[str, np.ndarray],
        high: Mapping[str, np.ndarray],
        deviation: Mapping[str, np.ndarray],
    ) -> None:
        self._low, self._high = dict(low), dict(high)
        self._names = sorted(deviation)
        seen, sizes = self._beside(sample), [int(np.prod(sample[name].shape[1:])) for name in self._names]
        spread = [np.broadcast_to(deviation[name].reshape(-1), size) for name, size in zip(self._names, sizes, strict=True)]
        self._nearest = Nearest(seen, np.concatenate(spread))

    @classmethod
    def open(cls, where: str, spec: Spec, rows: int) -> Self:
        """Read a dataset's, by name or place. Raises ConfigError where it shows something else; DataError and StorageError."""
        dataset = Dataset.open(where)
        ours, theirs = ({k: v for k, v in shapes_of(s).items() if k != "action"} for s in (spec, dataset.spec))
        if ours != theirs:
            raise ConfigError(f"reference={where} has other observations than the policy: it did not learn from them.")
        table, names = dataset.rows(), list(space_columns(spec.observation))
        at = np.arange(dataset.n_rows)
        if len(at) > rows:
            at = np.unique(many_integers(root_key(0), rows, len(at)))
        at = at[~table.take("closing", at).astype(bool)]
        found = dataset.statistics.observation
        moments = {name: found[name.partition("/")[2]] if isinstance(found, dict) else found for name in names}
        return cls(
            {name: table.take(name, at) for name in names},
            {name: np.asarray(one.min, np.float64) for name, one in moments.items()},
            {name: np.asarray(one.max, np.float64) for name, one in moments.items()},
            {name: np.asarray(one.std, np.float64) for name, one in moments.items()},
        )

    def nearest(self, rows: Mapping[str, np.ndarray]) -> np.ndarray:
        """Distance of observations [n, ...] by column to the nearest of the sample, [n]: √(mean over entries of (Δ/σ)²)."""
        return self._nearest(self._beside(rows))

    def beyond(self, rows: Mapping[str, np.ndarray]) -> np.ndarray:
        """By how many widths of its entry's range an observation is outside of it at most, [n]; 0 within."""
        worst = np.zeros(len(next(iter(rows.values()))))
        for name in self._low:
            value = rows[name].reshape(len(worst), -1).astype(np.float64)
            low, high = self._low[name].reshape(-1), self._high[name].reshape(-1)
            out = np.maximum(np.maximum(low - value, value - high), 0)
            width = np.broadcast_to(np.where(high > low, high - low, 1.0), out.shape)
            worst = np.maximum(worst, (out / width).max(1))
        return worst

    def _beside(self, rows: Mapping[str, Any]) -> np.ndarray:
        """Entries of all columns side by side, [n, entries]."""
        return np.concatenate([np.asarray(rows[name], np.float64).reshape(len(rows[name]), -1) for name in self._names], 1)
