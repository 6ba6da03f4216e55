"""Runs as MLflow has them: how they ended, what their metrics were by step, and a run with its children as results.

Runs of d3ray say by their tags what they are (`runs.py`); those of others are read too, as far as they go.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...data.errors import ConfigError
from ...data.storage.json_text import parse_json
from ...data.uris import without_password
from ..record.results import ConfigurationResult, Results, SeedResult
from ..results.configurations import free_seed, id_of
from ..storage.outbox import Line, lines_of_points
from ..storage.trials import Status
from .registered import is_registered, registry, tracking_uri
from .runs import every_run

_INFINITE = sys.float_info.max  # what MLflow makes of infinity
_NO_SETTINGS = ("seed", "seeds", "dataset")  # parameters that say what a run is, not how it learns


def lines_of(client: Any, run_id: str, names: Iterable[str]) -> list[Line]:
    """Read a run's metrics, by step; of several values at a step the one that was logged first."""
    points: dict[str, dict[int, float]] = {}
    for name in names:
        for point in sorted(client.get_metric_history(run_id, name), key=lambda one: (one.step, one.timestamp)):
            value = float(np.copysign(np.inf, point.value)) if abs(point.value) >= _INFINITE else point.value
            points.setdefault(name, {}).setdefault(point.step, value)
    return lines_of_points({name: found.items() for name, found in points.items()})


def status_of(run: Any) -> Status:
    return run.info.status if run.info.status in ("FINISHED", "FAILED", "KILLED") else "RUNNING"


def data_of(run: Any) -> dict[str, Any]:
    """Read a run's data description: `n_transitions`, `n_episodes`, `environment`, and perhaps `return_mean`."""
    inputs = run.inputs.dataset_inputs if run.inputs else []
    return json_tag(inputs[0].dataset.profile) if inputs else {}


def json_tag(text: str | None) -> dict[str, Any]:
    """A tag that holds a JSON object; empty where there is none, or MLflow cut it."""
    try:
        found = parse_json(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def seed_run(run: Any, seed: int, n_steps: int | None, lines: Sequence[Line]) -> SeedResult:
    """A run that is one seed's; `n_steps` None: it was to come as far as it has."""
    last = lines[-1].step if lines else 0
    found = SeedResult(
        seed=seed,
        status=status_of(run),
        reason=run.data.tags.get("d3ray.reason", ""),
        step=last,
        n_steps=last if n_steps is None else n_steps,
        run_id=run.info.run_id,
        last_sign=run.info.end_time and run.info.end_time / 1000,
    )
    return found.reading(partial(iter, lines))


def is_run(source: str) -> bool:
    """Return whether a text names an MLflow run, or a registered model, which a run has made."""
    return source.startswith("runs:") or is_registered(source)


def read_run(source: str, tracking: str | None = None, storage: str = "./d3ray_results") -> Results:
    """A run of MLflow, or with its children, each a seed, the run of an experiment; metrics are read at once.

    Args:
        source: `runs:/ID`, or `models:/NAME@ALIAS` and `models:/NAME/VERSION`, whose run is meant.
        tracking: MLflow's tracking URI; None: MLFLOW_TRACKING_URI, else the database in `storage`.
        storage: A local results folder.

    Raises:
        ConfigError: there is no such run or model, or no tracking server is known.
        StorageError: the server does not answer.
    """
    uri = tracking_uri(tracking, storage)
    with registry(uri) as client:
        run = _run(client, source, uri)
        children = every_run(client, run.info.experiment_id, f"tags.`mlflow.parentRunId` = '{run.info.run_id}'")
        return _results(run, [(one, lines_of(client, one.info.run_id, one.data.metrics)) for one in children or [run]])


def tags_of_run(source: str, tracking: str | None, storage: str) -> dict[str, str]:
    """The tags of `runs:/ID`. Errors as `read_run`'s."""
    uri = tracking_uri(tracking, storage)
    with registry(uri) as client:
        return dict(_run(client, source, uri).data.tags)


def _run(client: Any, source: str, uri: str) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(_run_id(client, source))
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        raise ConfigError(f"There is no {source} in {without_password(uri)}.") from None


def _run_id(client: Any, source: str) -> str:
    if not is_registered(source):
        return source.removeprefix("runs:").strip("/")
    name, _, which = source.removeprefix("models:").strip("/").partition("@")
    if which:
        return client.get_model_version_by_alias(name, which).run_id
    name, _, version = name.rpartition("/")
    return client.get_model_version(name, version).run_id


def _results(run: Any, seeds: list[tuple[Any, list[Line]]]) -> Results:
    alike: dict[str, list[tuple[Any, list[Line]]]] = {}
    for one, lines in seeds:
        key = [one.data.tags.get("d3ray.fingerprint"), _settings(one)]
        alike.setdefault(json.dumps(key, sort_keys=True), []).append((one, lines))
    name = run.data.tags.get("d3ray.experiment") or run.info.run_name or run.info.run_id
    configurations = [_configuration(name, members) for members in alike.values()]
    return Results(
        name=name,
        state=status_of(run),
        reason=run.data.tags.get("d3ray.reason", ""),
        data={**data_of(run), **configurations[0].data},
        environment=configurations[0].environment,
        episodes=configurations[0].settings.get("evaluation.episodes"),
        configurations=configurations,
        created=run.info.start_time / 1000,
        last_sign=(run.info.end_time or run.info.start_time) / 1000,
    )


def _configuration(name: str, members: list[tuple[Any, list[Line]]]) -> ConfigurationResult:
    first, _ = members[0]
    settings, tags = _settings(first), first.data.tags
    seeds: dict[int, SeedResult] = {}
    for run, lines in members:
        named = run.data.tags.get("d3ray.seed") or run.data.params.get("seed") or ""
        seed = free_seed(int(named) if named.isdecimal() else None, seeds)
        n_steps = settings.get("n_steps")
        seeds[seed] = seed_run(run, seed, n_steps if isinstance(n_steps, int) else None, lines)
    data = data_of(first)
    where = settings.get("evaluation.environment.id") or settings.get("evaluation.environment") or data.get("environment")
    return ConfigurationResult(
        experiment=name,
        algorithm=tags.get("d3ray.algorithm") or str(settings.get("algorithm.name") or name),
        settings=settings,
        n_steps=max(one.n_steps for one in seeds.values()),
        seeds=[seeds[seed] for seed in sorted(seeds)],
        data={"name": tags.get("d3ray.dataset", ""), "fingerprint": tags.get("d3ray.fingerprint")},
        environment=id_of(where),
    )


def _settings(run: Any) -> dict[str, Any]:
    """Parameters as the values that they are texts of, named as in a trial's configuration."""
    found: dict[str, Any] = {}
    for name, text in run.data.params.items():
        if name not in _NO_SETTINGS:
            try:
                found["algorithm.name" if name == "algorithm" else name] = parse_json(text)
            except ValueError:
                found["algorithm.name" if name == "algorithm" else name] = text
    if longer := run.data.tags.get("d3ray.n_steps"):
        found["n_steps"] = int(longer)
    return found
