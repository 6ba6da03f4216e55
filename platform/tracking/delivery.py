"""From an experiment's folders to MLflow: what they say is made true there, however often and after whatever.

One pass looks at every trial and does what is missing: creates runs, sends metrics up to the newest committed checkpoint, logs the
policies of the best configuration, sets statuses. Each step can be repeated, so a pass may stop anywhere and the next one goes on.

What was delivered is noted in the trial's folder, and a note is believed while its run is there under the same parent: so a pass
over trials that have ended asks MLflow nothing, and within a process does not look at them again.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from ...data.errors import D3rayError, StorageError
from ...data.uris import without_password
from ..results.configurations import by_configuration, objective_of, objective_value
from ..statistics import summarise
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..storage.outbox import Line, lines
from ..storage.resuming import flatten
from ..storage.trials import Status, Trial
from ..surroundings import describe_machine, read_surroundings
from ..words import resume_command
from .metric_files import MetricFiles
from .models import prepare_to_register, register
from .place import FILE, is_at, shown
from .runs import Tracking

_SECONDS_BETWEEN = 1.0
_SECONDS_AFTER_FAILURE = 5.0


def patience() -> float:
    """Seconds to keep trying at the end of an experiment: `D3RAY_DELIVERY_SECONDS`, else 60."""
    return float(os.environ.get("D3RAY_DELIVERY_SECONDS", "60"))


class Delivery:
    """Delivers in a thread while an experiment runs, as a context. A server that is away is tried again; training goes on."""

    def __init__(
        self, tracking: Tracking, experiment: Experiment, trials: Sequence[Trial], files: MetricFiles | None = None
    ) -> None:
        self.tracking, self.experiment = tracking, experiment
        self.files = files or MetricFiles(experiment, ())
        self.trials = {trial.identity: trial for trial in trials}
        self.trouble = ""  # why the last pass failed; empty when it did not
        self._begun = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="d3ray-delivery", daemon=True)

    def __enter__(self) -> Self:
        return self

    def add(self, trial: Trial) -> None:
        self.tracking.settled.discard(trial.key)
        self.files.forget(trial)
        self.trials.setdefault(trial.identity, trial)

    def look_anew(self) -> None:
        """Looks after the trials that there are now: those that were there before anything began may have been split."""
        self.trials = {trial.identity: trial for trial in self.experiment.trials()}

    def start(self, *, runs: bool) -> None:
        """Creates the MLflow runs, and says that the experiment `runs`. Raises ServerAwayError: later it would be tried again."""
        if runs:
            self.experiment.set_state("RUNNING")
        self._begun = True
        with self.tracking.answers():
            self.tracking.delete_runs(self.experiment.replaced)
        self.experiment.forget_replaced()
        deliver(self.tracking, self.experiment, list(self.trials.values()))
        self._thread.start()

    def _work(self) -> None:
        with suppress(Exception):  # what cannot be imported is said by what asks for it
            prepare_to_register()
        while not self._stop.wait(_SECONDS_AFTER_FAILURE if self.trouble else _SECONDS_BETWEEN):
            self.attempt()

    def attempt(self) -> bool:
        """One pass; whether it went through. `trouble` says why not."""
        try:
            self.experiment.lock.check()
            self.files.update(list(self.trials.values()))  # first: a server that is away does not hold them up
            deliver(self.tracking, self.experiment, list(self.trials.values()))
            self.trouble = ""
        except D3rayError as error:
            self.trouble = str(error)
        except Exception as error:  # a fault of ours must not end the thread without a word: `finish` says it
            self.trouble = f"{type(error).__name__}: {error}."
        return not self.trouble

    def finish(self) -> str:
        """Delivers the rest; what could not be, in one sentence. Raises LostError where another command has taken it over."""
        self._end_thread()
        self.experiment.lock.check()
        deadline = time.monotonic() + patience()
        while not self.attempt():
            if time.monotonic() > deadline:
                go_on = resume_command(self.experiment.folder.name)
                return f"Not everything is in MLflow yet: {self.trouble} {go_on} delivers the rest."
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
            self.attempt()


def deliver(tracking: Tracking, experiment: Experiment, trials: Sequence[Trial]) -> None:
    """One pass.

    Raises:
        ServerAwayError: MLflow does not answer; what was sent before stays sent.
        StorageError: a folder cannot be read or written.
    """
    from mlflow.exceptions import MlflowException

    state = experiment.state
    status: Status = state["status"]
    with tracking.answers():
        parent = _parent(tracking, experiment)
        ended: list[Trial] = []
        for trial in trials:
            if trial.key in tracking.settled:
                continue
            try:
                if _deliver_trial(tracking, experiment, trial, parent, status):
                    ended.append(trial)
            except MlflowException:
                if not tracking.forget_deleted(trial.runs.values()):  # else the next pass makes it anew
                    raise
        if ended and experiment.configuration.get("objective"):
            _score_configurations(tracking, experiment, trials, ended, parent)
        for trial in ended:
            tracking.settled.add(trial.key)
            if not trial.status:  # it goes on already; whoever reopens it later takes it out again
                tracking.settled.discard(trial.key)
        note = experiment.folder.read_json(FILE) or {}
        if note.get("status") != status:
            if status != "RUNNING":
                _conclude(tracking, experiment, trials, parent, status)
            tracking.set_status(parent, status, state.get("reason", ""))
            experiment.folder.write_json(FILE, {**note, "run": parent, "status": status, **tracking.place})
            tracking.analyse()


def _parent(tracking: Tracking, experiment: Experiment) -> str:
    """The parent run; looked up once in a process."""
    known: dict[str, str] = tracking.known
    if experiment.key not in known:
        tags = {
            "d3ray.kind": "sweep" if "search" in experiment.configuration else "experiment",
            **_tags(experiment, experiment.dataset, experiment.configuration),
            **_code_tags(experiment),
            **experiment.tags,
        }
        params = params_of(experiment.dataset, experiment.configuration)
        parent = tracking.run(experiment.key, experiment.name, tags, params, experiment.dataset)
        note = experiment.folder.read_json(FILE) or {}
        if note.get("run") == parent and is_at(note, tracking.place):
            tracking.trust(parent)
        else:
            kept = {"view": note["view"]} if "view" in note else {}
            experiment.folder.write_json(FILE, {**kept, "run": parent, "status": "RUNNING", **tracking.place})
        known[experiment.key] = parent
    return known[experiment.key]


def _deliver_trial(tracking: Tracking, experiment: Experiment, trial: Trial, parent: str, overall: Status) -> bool:
    """Deliver what is missing of a trial; return whether it has ended, so that the rest of its configuration may be looked at."""
    ended, delivered = trial.status, trial.delivered  # statuses first: what ended committed its last metrics before
    worker = trial.worker or {}
    if len(ended) == len(trial.seeds) and all(_is_done(tracking, parent, delivered.get(s), ended[s], worker) for s in trial.seeds):
        if "objective" not in experiment.configuration or all(note.get("scored") for note in delivered.values()):
            tracking.settled.add(trial.key)
            return False
        return True
    committed = trial.committed
    for seed in trial.seeds:
        run = _child(tracking, experiment, trial, seed, parent, delivered.get(seed))
        note = dict(delivered.get(seed, {}))
        if note.get("run") != run or not _is_here(tracking, note):  # another server, or the run was deleted there: from the start
            note = {"run": run, "uri": tracking.place["uri"], "step": -1, "status": "RUNNING"}
        before = dict(note)
        if worker and note.get("attempt") != worker["attempt"]:
            node = {"d3ray.node": worker["host"], "d3ray.node_machine": worker.get("machine", "")}
            tags = {**node, "d3ray.attempt": str(worker["attempt"]), **_code_tags(experiment), **_longer_tags(experiment)}
            tracking.set_tags(run, {name: text for name, text in tags.items() if text})
            note |= {"attempt": worker["attempt"], "status": ""}  # whatever it was, it is to be said of this attempt
        while found := _some(trial.outbox(seed), int(note["step"]), committed):
            tracking.send(run, _with_objective(experiment, found))
            note["step"] = found[-1].step
            trial.note_delivered({**delivered, seed: note})
        about = ended.get(seed, {"status": "RUNNING" if overall == "RUNNING" else "KILLED"})
        reason = about.get("reason", "")
        if (note["status"], note.get("reason", "")) != (about["status"], reason):
            tags = {"d3ray.warning": about["warning"]} if about.get("warning") else {}
            if best := about.get("best"):
                tags |= {
                    "d3ray.metric": best["metric"],
                    "d3ray.best_value": str(best["value"]),
                    "d3ray.best_step": str(best["step"]),
                }
            tracking.set_tags(run, tags)
            tracking.set_status(run, about["status"], reason)
            note |= {"status": about["status"], "reason": reason}
        if note != before:
            delivered[seed] = note
            trial.note_delivered(delivered)
    return len(ended) == len(trial.seeds)


def _with_objective(experiment: Experiment, found: list[Line]) -> list[Line]:
    """In a sweep a seed's metrics with its objective, the first of them: so it is what MLflow compares runs by at first sight."""
    if "objective" not in experiment.configuration:
        return found
    name = objective_of(experiment.configuration).metric
    return [
        line._replace(metrics={"objective": line.metrics[name], **line.metrics} if name in line.metrics else line.metrics)
        for line in found
    ]


def _is_done(
    tracking: Tracking, parent: str, note: Mapping[str, Any] | None, about: Mapping[str, Any], worker: Mapping[str, Any]
) -> bool:
    """Return whether the note of a seed that ended says that all of its newest attempt is there."""
    if note is None or not _is_here(tracking, note) or not tracking.believes(parent, note["run"]):
        return False
    said, ended = (note["status"], note.get("reason", "")), (about["status"], about.get("reason", ""))
    return said == ended and note.get("attempt") == worker.get("attempt")


def _is_here(tracking: Tracking, note: Mapping[str, Any]) -> bool:
    """Return whether a seed's note is about the server in use."""
    return "uri" in note and shown(note) == tracking.place["uri"]


def _some(folder: Folder, after: int, upto: int) -> list[Line]:
    """The lines of a part, or of a few small ones."""
    found: list[Line] = []
    for line in lines(folder, after, upto):
        found.append(line)
        if len(found) >= 100:
            break
    return found


def _child(tracking: Tracking, experiment: Experiment, trial: Trial, seed: int, parent: str, note: Mapping[str, Any] | None) -> str:
    key = trial.runs[seed]
    if key not in tracking.known and note and _is_here(tracking, note) and tracking.believes(parent, note["run"]):
        tracking.known[key] = note["run"]
    if key not in tracking.known:
        tags = {
            "mlflow.parentRunId": parent,
            "d3ray.kind": "seed",
            **_tags(experiment, trial.dataset, trial.configuration),
            **_code_tags(experiment),
            "d3ray.trial": trial.identity,
            "d3ray.seed": str(seed),
            "d3ray.folder": without_password(trial.folder.name),
            **trial.tags,
        }
        if trial.number is not None:
            tags["d3ray.configuration"] = str(trial.number)
        params = {"seed": str(seed), **params_of(trial.dataset, trial.configuration)}
        title = trial.title or f"{experiment.name}{'' if trial.number is None else f' {trial.number}'}"
        tracking.known[key] = tracking.run(key, f"{title} seed {seed}", tags, params, trial.dataset)
    return tracking.known[key]


def _tags(experiment: Experiment, dataset: Mapping[str, Any], configuration: Mapping[str, Any]) -> dict[str, str]:
    return {
        "d3ray.experiment": experiment.name,
        "d3ray.folder": without_password(experiment.folder.name),
        "d3ray.dataset": str(dataset["name"]),
        "d3ray.fingerprint": str(dataset["fingerprint"]),
        "d3ray.algorithm": str(configuration.get("algorithm", {}).get("name", "")),
        **_longer_tags(experiment),
    }


def _longer_tags(experiment: Experiment) -> dict[str, str]:
    """The steps of an experiment that was made longer: MLflow keeps the parameter `n_steps` as it was first."""
    return {} if experiment.first_n_steps is None else {"d3ray.n_steps": str(experiment.configuration["n_steps"])}


def _code_tags(experiment: Experiment) -> dict[str, str]:
    """The user's code, the versions and the machine with which the newest command runs the experiment."""
    newest = (read_surroundings(experiment.folder) or [{}])[-1]
    tags = {
        "d3ray.versions": ", ".join(f"{name} {number}" for name, number in newest.get("versions", {}).items()),
        "d3ray.machine": describe_machine(newest) if newest else "",
    }
    if git := newest.get("git"):
        tags |= {
            "mlflow.source.git.commit": git["commit"],
            "mlflow.source.git.branch": git["branch"],
            "mlflow.source.git.repoURL": git["remote"],
            "d3ray.git_dirty": json.dumps(git["dirty"]),
        }
    return {name: text for name, text in tags.items() if text}


def params_of(dataset: Mapping[str, Any], configuration: Mapping[str, Any]) -> dict[str, str]:
    """A run's parameters: its settings by dotted name, as texts."""
    found = {"dataset": str(dataset["name"])}
    for name, value in flatten({**configuration, "dataset": found["dataset"]}):  # a sweep's has the place there
        short = "algorithm" if name == "algorithm.name" else name
        found[short] = (value if isinstance(value, str) else json.dumps(value))[:5900]  # MLflow takes 6000
    return found


def _score_configurations(
    tracking: Tracking, experiment: Experiment, trials: Sequence[Trial], ended: Iterable[Trial], parent: str
) -> None:
    """The objective of configurations whose last trial has ended for good: on the parent by number, and on each seed's run.

    There it is `configuration/objective`, with the ends of its interval beside it, of few seeds the lowest and the highest; the
    seed's own was sent with its metrics.
    """
    objective, numbers = objective_of(experiment.configuration), {trial.number for trial in ended}
    for members in by_configuration(trial for trial in trials if trial.number in numbers):
        about = {seed: one for trial in members if trial.is_settled for seed, one in trial.status.items()}
        if len(about) < len(experiment.configuration["seeds"]):  # others go on, or have not begun
            continue
        notes = [trial.delivered for trial in members]
        if (value := objective_value(objective, about)) is not None:
            _send_objective(tracking, parent, members, notes, about, objective.metric, value)
        for trial, note in zip(members, notes, strict=True):
            trial.note_delivered({seed: {**one, "scored": True} for seed, one in note.items()})


def _send_objective(
    tracking: Tracking,
    parent: str,
    members: Sequence[Trial],
    notes: Sequence[Mapping[int, Mapping[str, Any]]],
    about: Mapping[int, Mapping[str, Any]],
    metric: str,
    value: float,
) -> None:
    counted = {seed: one.get("metrics", {}) for seed, one in about.items() if one["status"] != "FAILED"}
    found = summarise([metrics[metric] for metrics in counted.values() if metric in metrics])
    shared = {"configuration/objective": value}
    if found.interval is not None:
        ends = ("low", "high") if found.level is not None else ("lowest", "highest")  # too few seeds for an interval of 95 %
        low, high = found.interval if found.level is not None else (found.min, found.max)
        shared |= {f"configuration/objective_{ends[0]}": low, f"configuration/objective_{ends[1]}": high}
    when = max(one.get("time", 0) for one in about.values())
    for trial, note in zip(members, notes, strict=True):
        for seed in trial.seeds:
            tracking.send(note[seed]["run"], [Line(0, when, shared)])  # MLflow draws what stands at step 0 alone as bars
    tracking.send(parent, [Line(members[0].number or 0, when, {"objective": value})])


def _conclude(tracking: Tracking, experiment: Experiment, trials: Sequence[Trial], parent: str, status: Status) -> None:
    """Means over the seeds on the parent, once all have finished, and the best configuration's policies in the registry."""
    if "search" not in experiment.configuration and len(by_configuration(trials)) == 1:  # over several a mean says nothing
        ended = [about for trial in trials for about in trial.status.values()]
        if ended and all(about["status"] == "FINISHED" for about in ended):  # once: later means would be second points
            names = set[str].intersection(*(set(about["metrics"]) for about in ended)) - {"step"}
            means = {name: sum(about["metrics"][name] for about in ended) / len(ended) for name in sorted(names)}
            tracking.send(parent, [Line(max(a["step"] for a in ended), max(a["time"] for a in ended), means)])
    if status != "KILLED":  # what was stopped may find a better one when it goes on
        register(tracking, experiment, trials, parent)
