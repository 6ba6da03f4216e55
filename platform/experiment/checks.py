"""What an experiment cannot run without, looked at before any work, and how its data are described."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...algos.environments.goals import GoalObservation, aimed
from ...algos.environments.make import make
from ...algos.learning.setup import aimed as told
from ...data.dataset import Dataset
from ...data.errors import ConfigError, did_you_mean
from ...data.uris import without_secrets
from ..cluster.session import is_own_ray, node_count
from ..places import Data
from ..settings.config import ExperimentConfig
from ..settings.evaluation import check_spaces, environment_to_play, measured
from ..storage.resuming import check_name
from ..subjects.kind import streams
from ..tracking.runs import check_tracking
from ..worker.subjects import check_data as check_learning


def check_place(config: ExperimentConfig) -> None:
    """Raises ConfigError where results or runs could not be kept, or not be seen by every machine that trains."""
    check_name(config.experiment)
    here = "://" not in config.storage and not Path(config.storage).expanduser().is_absolute()
    nodes = node_count(to_come=True) if here or not os.environ.get("MLFLOW_TRACKING_URI") else 1
    check_tracking(config.storage_place, nodes)
    if here and nodes > 1:
        raise ConfigError(
            f"storage is {config.storage}, a folder of this machine, and the cluster has or may start {nodes} nodes: say a URI, or "
            "the absolute path of a folder that all of them share."
        )


def describe_dataset(dataset: Data, place: str) -> dict[str, Any]:
    """Describe the data for the tracking server and for comparison when an experiment is resumed. JSON."""
    returns = dataset.statistics.return_ if isinstance(dataset, Dataset) else None
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "source": without_secrets(place),
        "n_transitions": dataset.n_transitions,
        "n_episodes": dataset.n_episodes,
        "environment": dataset.environment.id if dataset.environment else None,
        "return_mean": returns and returns.mean,
        "return_std": returns and returns.std,
        "schema": {name: [dtype, *shape] for name, (dtype, shape) in dataset.kinds.items()},
    }


def check_data(config: ExperimentConfig, dataset: Data, objective: str | None = None) -> None:
    """Raises before any work what a trial would raise in its first second, or after its first evaluation.

    `objective` is the metric by which a sweep compares.
    """
    algorithm = config.make_algorithm(config.seeds[0])
    check_learning(algorithm, dataset, config.evaluation, config.online)
    environment = None if config.evaluation is None else environment_to_play(config.evaluation, dataset, algorithm)
    if environment is not None:
        seen = told(algorithm, dataset)
        with make(aimed(environment, seen.spec)) as vector:
            check_spaces(seen, vector.spec, environment if isinstance(environment, str) else environment.id)
            if isinstance(vector.single, GoalObservation):
                for task in set(vector.single.tasks):  # one that there is not is refused by the environment
                    vector.reset([0], options=[{"task_id": task}])
    known = measured(config.evaluation, environment, dataset, algorithm)
    none = f"objective.metric: {algorithm.name} on {dataset.name!r} measures no"
    for said, metric in (("checkpoint.best: there is no metric", config.checkpoint.best), (none, objective)):
        if metric is None or metric in known or metric.startswith("train/") or metric.endswith("_loss"):  # the algorithm's own
            continue
        raise ConfigError(f"{said} {metric!r}{did_you_mean(metric, [*known, 'train/td_error'])}")
    if is_own_ray() and not streams(config.algorithm.settings):  # the head of a cluster need not hold what others train on
        dataset.prepare()
