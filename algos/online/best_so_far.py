"""The best policy so far of an online run, kept beside its checkpoints as PFRL's `save_best_so_far_agent` has it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...data.errors import ConfigError, did_you_mean
from ..learning.estimator import Estimator
from ..saving.checkpoint import read_checkpoint, write_checkpoint

BEST = "best"


class BestSoFar:
    """Writes the algorithm to the run's `folder`/best, which `d3ray.load` opens, whenever a metric is larger than it ever was.

    What was noted is in the folder itself. So a run that is gone on from compares with what it had; epochs that it does once more
    give the same values, which are not larger, and leave the folder as it is.

    Raises ConfigError where `evaluators` has none of the metric's ("evaluation/return"), or the best was chosen by another metric;
    StorageError where what is there cannot be read.
    """

    def __init__(self, folder: Path, metric: str, evaluators: Iterable[str], *, resumed: bool) -> None:
        self._path, self._metric, self._value = folder / BEST, metric, -math.inf
        self._evaluator = metric.partition("/")[0]
        known = list(evaluators)
        if self._evaluator not in known:
            others = did_you_mean(self._evaluator, known) if known else ": give eval_env, which is 'evaluation'."
            raise ConfigError(f"save_best is {metric!r}, and no evaluator has this name{others}")
        if resumed and self._path.exists():
            noted = read_checkpoint(self._path)[1].get("best", {})
            if noted.get("metric") != metric:
                raise ConfigError(f"{self._path} was chosen by {noted.get('metric')!r}, not by {metric!r}: name the same.")
            self._value = float(noted["value"])

    def look(self, algorithm: Estimator, epoch: int, metrics: Mapping[str, float]) -> None:
        """Keeps the algorithm, where it is better than before. Raises ConfigError: the evaluator gives no such metric."""
        if self._metric not in metrics:
            given = [name for name in metrics if name.startswith(f"{self._evaluator}/")]
            raise ConfigError(f"save_best is {self._metric!r}, which was not evaluated{did_you_mean(self._metric, given)}")
        value = metrics[self._metric]
        if not math.isfinite(value) or value <= self._value:
            return
        tensors, meta = algorithm.state()
        noted = {"metric": self._metric, "value": value, "epoch": epoch}
        write_checkpoint(self._path, tensors, {**meta, "seed": algorithm.seed, "best": noted})
        self._value = value
