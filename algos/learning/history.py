"""The metrics of every epoch, as a table that a notebook shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...data.errors import ConfigError, did_you_mean
from .fit import Fit

_WHOLE = ("seed", "epoch", "step")  # columns of whole numbers


class Trained(NamedTuple):
    """The metrics of one seed.

    Attributes:
        seed: Its seed.
        coefficients: In a stack those in which rows differ, with this row's values.
        epochs: A dictionary for each: `epoch`, from 1 as they were counted when they were trained, and the metrics.
    """

    seed: int
    coefficients: dict[str, float]
    epochs: tuple[Mapping[str, float], ...]


@dataclass(frozen=True, repr=False, eq=False)
class History:
    """The metrics of every epoch that was trained since the networks were built or loaded, a row each, of all seeds.

    Columns are `seed`, in a stack the coefficients in which its rows differ, `epoch`, `step` (gradient steps done) and the metrics,
    as `train/critic_loss`. It is as things stood when it was asked for: training that goes on makes another one.

    Attributes:
        algorithm: Its name.
        settings: Its settings. JSON.
        data: Name, fingerprint and mean return of what it was trained on; empty where that is no dataset.
        runs: One for each seed.
    """

    algorithm: str
    settings: dict[str, Any]
    data: dict[str, Any]
    runs: tuple[Trained, ...]

    @classmethod
    def of(cls, fit: Fit) -> History:
        values = {name: [float(value) for value in rows] for name, rows in fit.learner.values.items()}
        differing = [name for name, rows in values.items() if len(set(rows)) > 1]
        runs = [
            Trained(seed, {name: values[name][k] for name in differing}, tuple(fit.measured[k])) for k, seed in enumerate(fit.seeds)
        ]
        settings = fit.algorithm.check_settings().model_dump(mode="json")
        return cls(fit.algorithm.name, settings, dict(fit.sources.data), tuple(runs))

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics, in the order of their first appearance."""
        names = {name: None for run in self.runs for epoch in run.epochs for name in epoch}
        return [name for name in names if name not in _WHOLE]

    @property
    def columns(self) -> list[str]:
        coefficients = self.runs[0].coefficients if self.runs else ()
        return ["seed", *coefficients, "epoch", "step", *self.metrics]

    def __len__(self) -> int:
        return sum(len(run.epochs) for run in self.runs)

    def __iter__(self) -> Iterator[dict[str, float]]:
        """Rows as dictionaries, seed after seed; what was not measured in an epoch is not in its row."""
        for run in self.runs:
            for epoch in run.epochs:
                yield {"seed": run.seed, **run.coefficients, **epoch}

    def __getitem__(self, column: str) -> np.ndarray:
        """A column, [rows]: int64 of `seed`, `epoch` and `step`, else float64, NaN where nothing was measured.

        Raises ConfigError where there is no such column; the nearest is named.
        """
        if column not in self.columns:
            raise ConfigError(f"There is no {column!r} in this history{did_you_mean(column, self.columns)}")
        return np.array([row.get(column, np.nan) for row in self], np.int64 if column in _WHOLE else np.float64)

    def to_arrow(self) -> Any:
        """The table as a pyarrow.Table; null where nothing was measured."""
        rows = list(self)
        whole = {name: pa.int64() if name in _WHOLE else pa.float64() for name in self.columns}
        return pa.table({name: pa.array(_values(rows, name, kind), kind) for name, kind in whole.items()})

    def to_pandas(self) -> Any:
        """The table as a pandas.DataFrame, for which pandas must be there."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        seeds = ", ".join(str(run.seed) for run in self.runs)
        return f"History({self.algorithm}, seeds {seeds}: {len(self):,} epochs of {len(self.metrics)} metrics)"

    def _repr_html_(self) -> str:
        """The first and last rows, as notebooks show tables."""
        return self.to_pandas().to_html(max_rows=10, index=False, border=0)


def _values(rows: Sequence[Mapping[str, float]], name: str, kind: Any) -> list[float | int | None]:
    found = [row.get(name) for row in rows]
    return [None if value is None else int(value) for value in found] if kind == pa.int64() else list(found)
