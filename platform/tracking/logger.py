"""Metrics of a `fit` in MLflow, when asked: a run for each training, beside `CSVLogger` and `TensorBoardLogger`."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from ...algos.learning.estimator import Estimator
from ..storage.outbox import Line
from .delivery import params_of
from .runs import ServerAwayError, Tracking, every_run

_ALWAYS = "time/updates_per_second"  # a metric of every epoch


class MLflowLogger:
    """A run of MLflow with the settings, the data and, by gradient step, the metrics of a training; of a stack one for each seed.

    A training that begins makes a new run. One that goes on, in this program or from a saved algorithm, adds to the newest run of
    its name, algorithm and seed, of which one with equal settings is preferred; steps that the run has already stay as they are. A
    server that is away holds no training up: what it missed is sent once it answers.

    Args:
        experiment: MLflow's experiment, made where there is none; None: MLFLOW_EXPERIMENT_NAME, else `d3ray`.
        run: The run's name; None: ALGORITHM-DATASET. Seeds of a stack have theirs behind it.
        tracking_uri: Of the server or database; None: MLFLOW_TRACKING_URI, else the database in `storage`.
        storage: A local results folder, for that database.
    """

    def __init__(
        self,
        experiment: str | None = None,
        run: str | None = None,
        tracking_uri: str | None = None,
        storage: str = "./d3ray_results",
    ) -> None:
        self.experiment, self.run, self.tracking_uri, self.storage = experiment, run, tracking_uri, storage
        self._tracking: Tracking | None = None

    def begin(self, algorithm: Estimator, part: str) -> MLflowLog:
        """Makes the run, or finds it where an earlier one is gone on from.

        Raises:
            ConfigError: there is no server where it says, or it refuses.
            StorageError: the database cannot be written.
        """
        if self._tracking is None:
            self._tracking = Tracking.open(self.storage, uri=self.tracking_uri, experiment=self.experiment)
        data = algorithm.fitted.sources.data
        name = self.run or "-".join([algorithm.name, *([str(data["name"])] if data else [])])
        return MLflowLog(self._tracking, algorithm, data, f"{name} {part.replace('-', ' ')}" if part else name)


class MLflowLog:
    """The run of one training."""

    def __init__(self, tracking: Tracking, algorithm: Estimator, data: Mapping[str, Any], name: str) -> None:
        self._tracking, self._name = tracking, name
        self._waiting: list[Line] = []
        self._bad, self._away = 0, False
        self._handled = sys.exception()
        settings = {"algorithm": {"name": algorithm.name, **algorithm.check_settings().model_dump(mode="json")}}
        params = {"seed": str(algorithm.seed), **params_of({"name": data.get("name", "")}, settings)}
        params = {name: value for name, value in params.items() if data or name != "dataset"}
        tags = {"d3ray.kind": "fit", "d3ray.algorithm": algorithm.name, "d3ray.seed": str(algorithm.seed)}
        if data:
            tags |= {"d3ray.dataset": str(data["name"]), "d3ray.fingerprint": str(data["fingerprint"])}
        known = self._earlier(tags, params) if algorithm.step else None
        key = known.data.tags["d3ray.key"] if known else uuid4().hex
        inputs = {"source": data["name"], "schema": {}, **data} if data else {}
        with tracking.answers():
            self.run_id = tracking.run(key, name, {} if known else tags, params, inputs)
            tracking.set_status(self.run_id, "RUNNING")
            sent = tracking.client.get_metric_history(self.run_id, _ALWAYS) if known else []
        self._last = max((point.step for point in sent), default=-1)

    def _earlier(self, tags: Mapping[str, str], params: Mapping[str, str]) -> Any:
        """The run that is gone on from; None: there is none."""
        same = " and ".join(f"tags.`{name}` = '{tags[name]}'" for name in ("d3ray.kind", "d3ray.algorithm", "d3ray.seed"))
        with self._tracking.answers():
            runs = every_run(self._tracking.client, self._tracking.experiment_id, same, order_by=["attributes.start_time DESC"])
        found = [run for run in runs if run.info.run_name == self._name]
        return next((run for run in found if run.data.params == params), found[0] if found else None)

    def __call__(self, algorithm: Estimator, epoch: int, metrics: Mapping[str, float]) -> None:
        self._bad = int(metrics.get("first_bad_step", self._bad))
        step = round(metrics["step"])
        if step > self._last:
            shown = {name: value for name, value in metrics.items() if name != "step"}
            self._waiting.append(Line(step, time.time_ns() // 1_000_000, shown))
            self._last = step
        self._reached(self._send)

    def close(self) -> None:
        """Ends the run: as failed where an error ends the training or losses were not finite, as killed by Ctrl-C."""
        error = sys.exception()
        status, reason = "FINISHED", ""
        if self._bad:
            status, reason = "FAILED", f"diverged at step {self._bad}"
        elif isinstance(error, KeyboardInterrupt):
            status = "KILLED"
        elif isinstance(error, Exception) and error is not self._handled:
            status, reason = "FAILED", f"{type(error).__name__}: {error}"

        def end() -> None:
            self._send()
            self._tracking.set_status(self.run_id, status, reason)

        self._reached(end)

    def _send(self) -> None:
        self._tracking.send(self.run_id, self._waiting)
        self._waiting = []

    def _reached(self, call: Any) -> None:
        """Calls what talks to the server; warns once where it is away, for what waits is sent with the next epoch."""
        try:
            with self._tracking.answers():
                call()
            self._away = False
        except ServerAwayError as error:
            if not self._away:
                warnings.warn(
                    f"{error} Training goes on; metrics wait until it answers, at most until training ends.", stacklevel=2
                )
            self._away = True
