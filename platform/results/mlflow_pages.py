"""Where the runs of an experiment are looked at: a command, an address, and links that open on the answer (`tracking/views.py`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ...data.uris import without_password

_LOCAL = "http://127.0.0.1:5000"  # where `mlflow ui` listens unless it is told otherwise


def mlflow_command(uri: str) -> str:
    """How to look at the runs: a command for a local database, an address for a server, without a password in it."""
    if uri.startswith("sqlite:"):
        return f"mlflow ui --backend-store-uri {shlex.quote(uri)}"
    return without_password(uri)


def view_links(note: Mapping[str, Any]) -> dict[str, str]:
    """Links to an experiment's views, `table` and `curves`, by its `tracking.json`.

    For a database in a file, to where `mlflow ui` is.
    """
    if "view" not in note:
        return {}
    uri, at = without_password(str(note.get("uri", ""))), str(note["experiment_id"])
    host = uri.rstrip("/") if uri.startswith(("http://", "https://")) else _LOCAL
    curves = f"{page(at, note['view'] + '-curves')}&compareRunsMode=CHART"
    return {"table": f"{host}/{page(at, note['view'])}", "curves": f"{host}/{curves}"}


def page(experiment_id: str, key: str) -> str:
    """MLflow's page of runs with a view; without the type of work it comes among agents' traces, a filter beside voids the key."""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={key}"
