"""Links into MLflow's pages that open on the answer: runs with return, algorithm, seed and what was searched, or grouped curves.

MLflow 3.17 opens an experiment on a page without runs, and its table of runs without a metric or a setting. A view that is shared
lies in a tag of the experiment, `mlflow.sharedViewState.KEY`, and a link that names the key opens it, in any browser. This is how
MLflow's own button for sharing works and is described nowhere: where it changes, links lead to MLflow's usual page.

Every experiment of ours has two, under the key of its own: the table of its seeds' runs, and the same as curves. One of all
experiments, the best first, stands in the menu of views, and the description of MLflow's experiment leads there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..results.configurations import objective_of
from ..results.mlflow_pages import page
from ..storage.experiments import Experiment
from .place import FILE
from .runs import ServerAwayError, Tracking

_TAG = "mlflow.sharedViewState."
_NOTE = "mlflow.note.content"  # the description, as MLflow keeps it
_ALL = "d3ray-runs"
_GROUPS = 3  # settings that curves are grouped by at most: legends grow


def keep_views(tracking: Tracking, experiment: Experiment) -> None:
    """Writes the views of an experiment that are not there, and notes their key in its `tracking.json`.

    They are a courtesy: a server that does not take them keeps nothing from being trained. Raises StorageError.
    """
    key = f"d3ray-{experiment.key}"
    with suppress(ServerAwayError), tracking.answers():
        client, at = tracking.client, tracking.experiment_id
        there = client.get_experiment(at).tags
        table = _table(experiment.configuration, f"tags.`d3ray.kind` = 'seed' AND tags.`d3ray.experiment` = '{experiment.name}'")
        every = _table({}, "tags.`d3ray.kind` = 'seed'")
        now = int(time.time() * 1000)
        named = {"name": "d3ray: runs by return", "createdAt": now, "updatedAt": now, "state": json.dumps(every)}
        wanted = {
            f"{_TAG}{key}": json.dumps(table),
            f"{_TAG}{key}-curves": json.dumps(_curves(table, experiment.configuration)),
            f"{_TAG}{_ALL}": json.dumps(named),
            _NOTE: f"[Runs by return]({page(at, _ALL)})",
        }
        for name, text in wanted.items():
            if name not in there:
                client.set_experiment_tag(at, name, text)
        note = experiment.folder.read_json(FILE) or {}
        if note.get("view") != key:
            experiment.folder.write_json(FILE, {**note, "view": key})


def forget_views(tracking: Tracking, experiment: Experiment) -> None:
    client, at = tracking.client, tracking.experiment_id
    for name in client.get_experiment(at).tags:
        if name.startswith(f"{_TAG}d3ray-{experiment.key}"):
            client.delete_experiment_tag(at, name)


def _table(configuration: Mapping[str, Any], which: str) -> dict[str, Any]:
    """The state of MLflow's table of runs."""
    objective = objective_of(configuration)
    shown = dict.fromkeys(["algorithm", *_searched(configuration), "seed", "dataset"])
    return {
        "searchFilter": which,
        "orderByKey": f"metrics.`{objective.metric}`",
        "orderByAsc": objective.direction == "min",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": [f"metrics.`{objective.metric}`", *(f"params.`{name}`" for name in shown)],
    }


def _curves(table: Mapping[str, Any], configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the table of runs into curves, a line and its range for each value of what was searched, else for each algorithm."""
    metric, groups = objective_of(configuration).metric, (_searched(configuration) or ["algorithm"])[:_GROUPS]
    chart = {"metricSectionId": "d3ray", "deleted": False, "isGenerated": False, "runsCountToCompare": 100, "metricKey": metric}
    line = {
        **{"uuid": "d3ray-curves", "type": "LINE", "selectedMetricKeys": [metric], "xAxisKey": "step", "xAxisScaleType": "linear"},
        **{"selectedXAxisMetricKey": "", "lineSmoothness": 0, "useGlobalXaxisKey": True, "scaleType": "linear", "range": {}},
    }
    return {
        **table,
        "groupBy": {"aggregateFunction": "average", "groupByKeys": [{"mode": "param", "groupByData": name} for name in groups]},
        "compareRunSections": [{"uuid": "d3ray", "name": metric, "display": True, "isReordered": False}],
        "compareRunCharts": [{**chart, **line}, {**chart, "uuid": "d3ray-last", "type": "BAR"}],
        "isAccordionReordered": True,
        "runsHiddenMode": "SHOW_ALL",
        "runListHidden": False,
    }


def _searched(configuration: Mapping[str, Any]) -> list[str]:
    """Parameters of runs that a sweep searches, or a benchmark compares."""
    return [name.removesuffix(".name") for name in configuration.get("search") or {} if not name.startswith(("seed", "n_steps"))]
