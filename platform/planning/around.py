"""What MLflow takes of a command: before its first trial, after its last, and of the disk. Measured in a folder that goes."""

from __future__ import annotations

import math
import os
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ...data.storage.claims import scratch_names
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..storage.trials import Trial
from ..tracking.delivery import deliver
from ..tracking.runs import Tracking


@dataclass(frozen=True)
class Tracked:
    """Cost of MLflow: a command's time, and disk space if its database lies there."""

    seconds: float  # until the first run is there, and from the last trial's end until all is
    database: float  # bytes of a database that is made for it; 0: there is one
    run: float  # bytes of a seed's run in it, but for its metrics
    models: float  # bytes of the policies of the best configuration, which are copied


def tracked(storage: str, experiment: Experiment, trials: Sequence[Trial]) -> Tracked:
    """Measures it by doing it with a database of its own. A server's answers may take longer; a plan leaves no trace there.

    In the folders of `trials`, a rehearsal's, lie those that the probe has measured; the first of them that has ended is delivered.
    """
    place = Folder(storage).local
    is_there = bool(os.environ.get("MLFLOW_TRACKING_URI")) or (place is not None and (place / "mlflow.db").exists())
    with tempfile.TemporaryDirectory(prefix=scratch_names("plan"), ignore_cleanup_errors=True) as scratch:
        begin = time.monotonic()
        import mlflow  # noqa: F401  # pyright: ignore[reportUnusedImport]

        seconds = time.monotonic() - begin
        uri = f"sqlite:///{Path(scratch, 'mlflow.db')}"
        if is_there:
            Tracking.open(scratch, uri=uri)
        begin = time.monotonic()
        tracking = Tracking.open(scratch, uri=uri)
        experiment.set_state("RUNNING")
        deliver(tracking, experiment, [])
        seconds += time.monotonic() - begin
        empty = _pages(Path(scratch))
        inner = (trial.folder / name for trial in trials for name in trial.folder.names())
        measured = (Trial(folder) for folder in inner if folder.read_json("trial.json") is not None)
        if (ended := next((one for one in measured if one.status), None)) is None:
            return Tracked(seconds, 0.0 if is_there else empty, 0.0, 0.0)
        deliver(tracking, experiment, [ended])  # as beside the training
        run = (_pages(Path(scratch)) - empty) / len(ended.seeds)
        experiment.set_state("FINISHED")
        begin = time.monotonic()
        deliver(tracking, experiment, [ended])
        seconds += time.monotonic() - begin
        models = sum(file.stat().st_size for file in Path(scratch, "mlartifacts").rglob("*") if file.is_file())
        return Tracked(seconds, 0.0 if is_there else empty, run, models)


def _pages(folder: Path) -> float:
    """Bytes of the database, with what is still in its log."""
    with closing(sqlite3.connect(folder / "mlflow.db")) as connection:
        return float(math.prod(connection.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "page_size")))
