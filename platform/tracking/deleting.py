"""Deleting an experiment, with its runs."""

from __future__ import annotations

from ...data.errors import ConfigError
from ..storage.experiments import Experiment
from .place import recorded_place
from .runs import Tracking
from .views import forget_views


def delete(experiment: Experiment, storage: str) -> None:
    """Marks the runs of an experiment as deleted in MLflow, and deletes its folder.

    The runs first: while the folder is there, somebody can say it again.

    Raises:
        ConfigError: it runs.
        StorageError: MLflow does not answer, or the folder cannot be deleted.
    """
    if not experiment.lock.acquire():
        raise ConfigError(f"The experiment {experiment.name!r} in {storage} is running: stop it first.")
    try:
        note = recorded_place(storage, experiment.name)
        if "uri" in note:
            keys = [*experiment.replaced, experiment.key, *(key for trial in experiment.trials() for key in trial.runs.values())]
            tracking = Tracking.open(storage, note)
            with tracking.answers():
                tracking.delete_runs(keys)
                forget_views(tracking, experiment)
        experiment.forget_replaced()
        experiment.discard()
    finally:
        experiment.close()
