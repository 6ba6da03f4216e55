"""From an experiment's folders to MLflow: what they say is made true there, however often and after whatever.

One pass looks at every trial and does what is missing: creates runs, sends metrics up to the newest committed checkpoint, logs the
policies of finished seeds, sets statuses. Each step can be repeated, so a pass may stop anywhere and the next one goes on.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from ..data.errors import D3rayError, StorageError
from .folders import Folder
from .models import champion, log_policy
from .outbox import Line, lines
from .storage import Experiment, Status, Trial, flatten
from .tracking import ServerAwayError, Tracking

_SECONDS_BETWEEN = 1.0
_SECONDS_AFTER_FAILURE = 5.0


def patience() -> float:
    """Seconds to keep trying at the end of an experiment: `D3RAY_DELIVERY_SECONDS`, else 60."""
    return float(os.environ.get("D3RAY_DELIVERY_SECONDS", "60"))


class Delivery:
    """Delivers in a thread while an experiment runs, as a context. A server that is away is tried again; training goes on."""

    def __init__(self, tracking: Tracking, experiment: Experiment, trials: Sequence[Trial]) -> None:
        self.tracking, self.experiment, self.trials = tracking, experiment, list(trials)
        self.trouble = ""  # why the last pass failed; empty when it did not
        self._begun = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="d3ray-delivery", daemon=True)

    def __enter__(self) -> Self:
        return self

    def add(self, trial: Trial) -> None:
        """One trial more to look after."""
        if all(trial.identity != known.identity for known in self.trials):
            self.trials.append(trial)

    def start(self, *, runs: bool) -> None:
        """Creates the MLflow runs, and says that the experiment `runs`. Raises ServerAwayError: later it would be tried again."""
        if runs:
            self.experiment.set_state("RUNNING")
        self._begun = True
        with self.tracking.answers():
            self.tracking.delete_runs(self.experiment.replaced)
        deliver(self.tracking, self.experiment, self.trials)
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.wait(_SECONDS_AFTER_FAILURE if self.trouble else _SECONDS_BETWEEN):
            self._attempt()

    def _attempt(self) -> bool:
        try:
            self.experiment.lock.renew()
            deliver(self.tracking, self.experiment, self.trials)
            self.trouble = ""
        except D3rayError as error:
            self.trouble = str(error)
        except Exception as error:  # a fault of ours must not end the thread without a word: `finish` says it
            self.trouble = f"{type(error).__name__}: {error}."
        return not self.trouble

    def finish(self) -> str:
        """Delivers the rest; what could not be, in one sentence."""
        self._end_thread()
        deadline = time.monotonic() + patience()
        while not self._attempt():
            if time.monotonic() > deadline:
                return f"Not everything is in MLflow yet: {self.trouble} The same command with --resume delivers the rest."
            time.sleep(min(_SECONDS_BETWEEN, patience()))
        return ""

    def _end_thread(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end_thread()
        if error is not None and self._begun:
            stopped = not isinstance(error, Exception)
            reason = "stopped by the user" if stopped else f"{type(error).__name__}: {error}"
            with suppress(StorageError):  # a disk that is full: what is being raised says so
                self.experiment.set_state("KILLED" if stopped else "FAILED", reason)
            self._attempt()


def deliver(tracking: Tracking, experiment: Experiment, trials: Sequence[Trial]) -> None:
    """One pass.

    Raises:
        ServerAwayError: MLflow does not answer; what was sent before stays sent.
        StorageError: a folder cannot be read or written.
    """
    state = experiment.state
    status: Status = state["status"]
    with tracking.answers():
        parent = _parent(tracking, experiment)
        for trial in trials:
            if trial.key not in tracking.settled:
                _deliver_trial(tracking, experiment, trial, parent, status)
        note = experiment.folder.read_json("tracking.json") or {}
        if note.get("status") != status:
            if status != "RUNNING":
                _conclude(tracking, experiment, trials, parent)
            tracking.set_status(parent, status, state.get("reason", ""))
            experiment.folder.write_json("tracking.json", {**note, "run": parent, "status": status, **tracking.place})


def _parent(tracking: Tracking, experiment: Experiment) -> str:
    """The parent run; looked up once in a process."""
    known: dict[str, str] = tracking.known
    if experiment.key not in known:
        tags = {"d3ray.kind": "experiment", **_tags(experiment, experiment.dataset, experiment.configuration)}
        params = _params(experiment.dataset, experiment.configuration)
        known[experiment.key] = tracking.run(experiment.key, experiment.name, tags, params, experiment.dataset)
        note = experiment.folder.read_json("tracking.json") or {}
        if note.get("run") != known[experiment.key] or note.get("uri") != tracking.uri:
            about = {"run": known[experiment.key], "status": "RUNNING", **tracking.place}
            experiment.folder.write_json("tracking.json", about)
    return known[experiment.key]


def _deliver_trial(tracking: Tracking, experiment: Experiment, trial: Trial, parent: str, overall: Status) -> None:
    ended, delivered = trial.status, trial.delivered  # statuses first: what ended committed its last metrics before
    committed = trial.committed
    for seed in trial.seeds:
        run = _child(tracking, experiment, trial, seed, parent)
        note = dict(delivered.get(seed, {}))
        if (
            note.get("run") != run or note.get("uri") != tracking.uri
        ):  # another server, or the run was deleted there: from the start
            note = {"run": run, "uri": tracking.uri, "step": -1, "status": "RUNNING"}
        before = dict(note)
        while found := _some(trial.outbox(seed), int(note["step"]), committed):
            tracking.send(run, found)
            note["step"] = found[-1].step
            trial.note_delivered({**delivered, seed: note})
        about = ended.get(seed, {"status": "RUNNING" if overall == "RUNNING" else "KILLED"})
        if about["status"] == "FINISHED" and "model" not in note:
            note["model"] = log_policy(tracking, experiment, trial, seed, run, about)
        if note["status"] != about["status"]:
            if best := about.get("best"):
                for key, value in (("metric", best["metric"]), ("best_value", best["value"]), ("best_step", best["step"])):
                    tracking.client.set_tag(run, f"d3ray.{key}", str(value))
            if warning := about.get("warning"):
                tracking.client.set_tag(run, "d3ray.warning", warning)
            tracking.set_status(run, about["status"], about.get("reason", ""))
            note["status"] = about["status"]
        if note != before:
            delivered[seed] = note
            trial.note_delivered(delivered)
    if len(ended) == len(trial.seeds):
        tracking.settled.add(trial.key)


def _some(folder: Folder, after: int, upto: int) -> list[Line]:
    """The lines of a part, or of a few small ones."""
    found: list[Line] = []
    for line in lines(folder, after, upto):
        found.append(line)
        if len(found) >= 100:
            break
    return found


def _child(tracking: Tracking, experiment: Experiment, trial: Trial, seed: int, parent: str) -> str:
    key = trial.runs[seed]
    if key not in tracking.known:
        tags = {
            "mlflow.parentRunId": parent,
            "d3ray.kind": "seed",
            **_tags(experiment, trial.dataset, trial.configuration),
            "d3ray.trial": trial.identity,
            "d3ray.seed": str(seed),
            "d3ray.folder": trial.folder.name,
        }
        params = {"seed": str(seed), **_params(trial.dataset, trial.configuration)}
        counted = "" if trial.number is None else f" {trial.number}"
        tracking.known[key] = tracking.run(key, f"{experiment.name}{counted} seed {seed}", tags, params, trial.dataset)
    return tracking.known[key]


def _tags(experiment: Experiment, dataset: Mapping[str, Any], configuration: Mapping[str, Any]) -> dict[str, str]:
    return {
        "d3ray.experiment": experiment.name,
        "d3ray.folder": experiment.folder.name,
        "d3ray.dataset": str(dataset["name"]),
        "d3ray.fingerprint": str(dataset["fingerprint"]),
        "d3ray.algorithm": str(configuration.get("algorithm", {}).get("name", "")),
    }


def _params(dataset: Mapping[str, Any], configuration: Mapping[str, Any]) -> dict[str, str]:
    found = {"dataset": str(dataset["name"])}
    for name, value in flatten(configuration):
        short = "algorithm" if name == "algorithm.name" else name
        found[short] = (value if isinstance(value, str) else json.dumps(value))[:5900]  # MLflow takes 6000
    return found


def _conclude(tracking: Tracking, experiment: Experiment, trials: Sequence[Trial], parent: str) -> None:
    """Means over the seeds on the parent, once all have finished, and the champion."""
    ended = [about for trial in trials for about in trial.status.values()]
    if ended and all(about["status"] == "FINISHED" for about in ended):  # once: later means would be second points
        names = set[str].intersection(*(set(about["metrics"]) for about in ended)) - {"step"}
        means = {name: sum(about["metrics"][name] for about in ended) / len(ended) for name in sorted(names)}
        tracking.send(parent, [Line(max(a["step"] for a in ended), max(a["time"] for a in ended), means)])
    champion(tracking, experiment, trials, parent)


def settle(storage: str, tracking: Tracking) -> list[str]:
    """Marks what died as KILLED, and delivers what it left: experiments that say RUNNING and that nobody holds. Their names."""
    found: list[str] = []
    root = Folder(storage)
    for name in root.names():
        if name.startswith(".") or (root / name).read_json("experiment.json") is None:
            continue
        experiment = Experiment(root / name)
        if experiment.state["status"] == "RUNNING" and experiment.lock.acquire():
            try:
                experiment.set_state("KILLED", "its command died")
                deliver(tracking, experiment, experiment.trials())
                found.append(name)
            except ServerAwayError:
                experiment.set_state("RUNNING")  # the next command that looks will see to it
            finally:
                experiment.lock.release()
    return found
