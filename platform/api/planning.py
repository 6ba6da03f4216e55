"""What an experiment would take, before it is begun."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...data.storage.claims import scratch_names
from ..record.jobs import JobName
from ..record.settings import Expected, Planned
from ..record.status import Status
from ..storage.folders import Folder
from .configs import Given, check, plain
from .submitting import place_at


def plan(config: Given, *, job: JobName = "train", address: str | None = None) -> Planned:
    """Trains a few trials for half a minute, on this machine or on a cluster, and works out what all would take. Nothing stays.

    Arguments as `submit`'s; a file that the config names has to be there where it is planned. Raises ConfigError: a setting cannot
    be used; StorageError: the cluster or the storage cannot be reached.
    """
    check(config, job=job)
    with tempfile.TemporaryDirectory(prefix=scratch_names("plan")) as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(json.dumps(plain(config, job)))
        place, arguments = place_at(address), ["--config", str(file), "--plan"]
        said = place.ask(job, [*arguments, "format=json"])
    return Planned.model_validate_json(said[said.index("{") :])


def expected(config: Given, *, job: JobName = "train", among: Sequence[Status]) -> Expected | None:
    """Estimate an experiment's time and GPU hours from a similar one's speed, without running anything.

    Of a sweep one configuration is told. `among` are experiments as `list` gives them, the newest first; None where none of them
    has trained this algorithm on this dataset at a known speed. Raises ConfigError: a setting cannot be used.
    """
    from ..words import rounded, time_text

    whole = check(config, job=job).config
    rates = [(one, [trial.rate for trial in one.trials if trial.rate]) for one in among]
    like = next(((one, found) for one, found in rates if found and _kind(one) == _names(whole)), None)
    if like is None:
        return None
    seconds = len(whole["seeds"]) * whole["n_steps"] / statistics.median(like[1])
    gpu_hours = float((whole.get("resources") or {}).get("gpu", 0)) * seconds / 3600
    gpus = f" and {rounded(gpu_hours)} GPU hours" if gpu_hours else ""
    each = " for each configuration" if job == "sweep" else ""
    text = f"about {time_text(seconds)}{gpus}{each}, if it is as fast as {like[0].name} was"
    return Expected(seconds=seconds, gpu_hours=gpu_hours, like=like[0].name, text=text)


def _kind(one: Status) -> tuple[str, str] | None:
    """Algorithm and dataset of an experiment; None where it kept no settings, or has several."""
    folder = Folder(one.folder)
    kept = (folder.read_json("settings.json") or {}).get("config", {})
    return _names(kept) if {"algorithm", "dataset"} <= kept.keys() else None


def _names(config: Mapping[str, Any]) -> tuple[str, str]:
    algorithm = config["algorithm"]
    return str(algorithm if isinstance(algorithm, str) else algorithm.get("name")), str(config["dataset"])
