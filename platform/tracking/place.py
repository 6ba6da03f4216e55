"""Where an experiment's runs are: a tracking server, and an MLflow experiment there. It is kept before the first of them is made.

`tracking.json` in the experiment's folder:
    uri             of the server, without user, password and query
    experiment, experiment_id    MLflow's, by name and id
    in_storage      whether it is the storage's own database, wherever the storage is mounted or has been moved to
    run, status     the parent run, and the status that it was given last
    view            key of its views of MLflow's pages, see `views.py`
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...data.uris import without_password
from ..storage.experiments import Experiment
from ..storage.folders import Folder

FILE = "tracking.json"


def recorded_place(storage: str, name: str) -> dict[str, Any]:
    """Read an experiment's `tracking.json`; empty if there is none. Raises StorageError."""
    return (Folder(storage) / name).read_json(FILE) or {}


def is_at(note: Mapping[str, Any], place: Mapping[str, Any]) -> bool:
    """Return whether the runs in a `tracking.json` are at a place, or do not exist yet."""
    if "uri" not in note:
        return True
    here = (note.get("in_storage") and place["in_storage"]) or shown(note) == place["uri"]
    return bool(here) and note.get("experiment", place["experiment"]) == place["experiment"]


def named(note: Mapping[str, Any]) -> str:
    """The URI that leads to what a `tracking.json` names; empty: to the storage's own database, or there is none.

    A database that is not there any more lay in a storage that was moved.
    """
    uri = str(note.get("uri", ""))
    gone = uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists()
    return "" if note.get("in_storage") or gone else uri


def shown(note: Mapping[str, Any]) -> str:
    """The server that a note names, without user and password."""
    return without_password(str(note["uri"])).rstrip("/")


def keep_place(experiment: Experiment, place: Mapping[str, Any]) -> None:
    """Keeps where an experiment's runs are from now on; says so where they were elsewhere. Raises StorageError."""
    note = experiment.folder.read_json(FILE) or {}
    if is_at(note, place):
        kept = {**note, **place}
    else:
        kept = dict(place)
        logging.getLogger("d3ray").warning(
            "The runs of %r are at %s; MLFLOW_TRACKING_URI names %s, which gets all of them now, and what follows.",
            experiment.name,
            shown(note),
            place["uri"],
        )
    if kept != note:
        experiment.folder.write_json(FILE, kept)
