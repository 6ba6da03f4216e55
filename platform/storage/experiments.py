"""Experiments as folders, with the trials in them (`trials.py`): who may write, and what became of it.

<storage>/<experiment>/
    experiment.json           name, key, configuration, the dataset's name and fingerprint; further tags of its run; where it was
                              made longer the n_steps that it was begun with, by which its trials are named
    settings.json             the job and its settings as they were given last, and where: what goes on with it needs no more
    state.json                RUNNING, FINISHED, FAILED or KILLED
    stacks.json               how many seeds a trial has, where the stacks that were asked for were split
    cancelled.json            it is to stop, for somebody wants that or its time is up: every trial does at its next epoch, and no
                              other begins
    faults.log                what Ray said of faults that were survived
    lock                      held by the command that runs the experiment
    replaced.json             keys of the runs of what it replaced, until the tracking server has deleted them
    trials/<identity>/        a configuration and its seeds
        trial.json            key, configuration, data, seeds, and a key for each seed's run, all made before the run is; in a sweep
                              also the configuration's number; what its runs are called, and further tags of theirs
        choice.json           in a sweep or a benchmark: what was chosen for it
        attempt               how often a worker began this trial; only the newest may commit
        worker.json           the newest attempt: its number, its machine
        checkpoints/step-…    see d3ray.algos.saving.checkpoint
        outbox/seed-K/        see d3ray.platform.storage.outbox
        best/seed-K/          the checkpoint with the best metric, an algorithm that `d3ray.load` opens
        policy/seed-K/        the policy package; of a model of the dynamics model/seed-K/, the model package
        stop.json, exploits.json, donated/  what a scheduler has decided, see d3ray.platform.worker.decisions
        status.json           how it ended, seed by seed; missing: unfinished
        retried               how often it was tried again after it had failed
        delivered.json        what the tracking server has got

Addresses stand there without user, password and options that may be secrets; only a trial's configuration, which its worker reads,
is as it was given.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from ...data.errors import StorageError
from ...data.uris import without_secrets, without_secrets_in
from .folders import Folder
from .locks import Lock
from .resuming import KEPT, REPLACED, Longer, fitting, is_running, own_folder
from .trials import CHOICE, FORMAT, Status, Trial, about_trial, identity

CANCELLED = "cancelled"  # why a trial ended, where somebody wanted that
_CANCELLED = "cancelled.json"
_SETTINGS = "settings.json"
_STACKS = "stacks.json"


class Experiment:
    """The folder of an experiment. `begin` gives the one that may run it; `look` one for reading."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.lock = folder, Lock(folder)
        about = folder.read_json("experiment.json")
        if about is None:
            raise StorageError(f"{folder} is no experiment: it has no experiment.json.")
        self.name: str = about["name"]
        self.key: str = about["key"]
        self.configuration: dict[str, Any] = about["configuration"]
        self.dataset: dict[str, Any] = about["dataset"]
        self.tags: dict[str, str] = about.get("tags", {})  # of its run, beside those that every run has
        self.first_n_steps: int | None = about.get("first_n_steps")  # that it was begun with; None: it was not made longer
        self.is_new = False

    @classmethod
    def look(cls, storage: str, name: str) -> Self:
        """An experiment, to read what is there. Raises StorageError where there is none."""
        return cls(Folder(storage) / name)

    @classmethod
    def begin(
        cls,
        storage: str,
        name: str,
        configuration: Mapping[str, Any],
        dataset: Mapping[str, Any],
        *,
        resume: bool = False,
        replace: bool = False,
        tags: Mapping[str, str] | None = None,
        longer: Longer | None = None,
    ) -> Self:
        """The experiment of a name, locked, to be run by this process.

        Args:
            storage: Folder or URI.
            name: Its name, also the folder's.
            configuration: What decides its results; JSON. A resumed one must have the same.
            dataset: `name`, `fingerprint` and whatever describes the data; a resumed one must have the same fingerprint.
            resume: Go on with what is there; begin where there is nothing.
            replace: Delete what is there.
            tags: Of its run in MLflow, beside those that every run has; a resumed one may have others.
            longer: Says why a resumed one may not have more `n_steps`; None: it may not have others.

        Raises:
            ConfigError: there is one already and neither was said, it runs, or it was begun with another configuration or other
            data; or the folder holds something else.
            StorageError: the storage cannot be written.
        """
        tags = without_secrets_in(tags or {})
        folder = own_folder(storage, name)
        lock = Lock(folder)
        if not lock.acquire(wait=resume):
            raise is_running(storage, name, folder)
        try:
            there = folder.read_json("experiment.json")
            configuration, dataset = fitting(storage, name, there, configuration, dataset, longer, resume=resume, replace=replace)
            if there is not None and resume:
                folder.delete([_CANCELLED])
                now = there | {"configuration": dict(configuration)} | ({"tags": dict(tags)} if tags else {})
                if (before := there["configuration"].get("n_steps")) != configuration.get("n_steps"):
                    now.setdefault("first_n_steps", before)
                if there != now:  # in what may change
                    folder.write_json("experiment.json", now)
            if there is not None and replace:
                before = cls(folder)
                keys = [*before.replaced, before.key, *(key for trial in before.trials() for key in trial.runs.values())]
                folder.write_json(REPLACED, list(dict.fromkeys(keys)))  # some are there where deleting was begun and killed
                _clear(folder)
                there = None
            if there is None:
                about = {"format": FORMAT, "name": name, "key": uuid4().hex, "created": time.time()}
                about |= {"configuration": dict(configuration), "dataset": dict(dataset), **({"tags": dict(tags)} if tags else {})}
                folder.write_json("experiment.json", about)
            experiment = cls(folder)
            experiment.lock, experiment.is_new = lock, there is None
            if experiment.first_n_steps is not None:
                for trial in experiment.trials():
                    trial.lengthen(experiment.configuration["n_steps"])
        except BaseException:
            lock.release()
            raise
        return experiment

    def trials(self) -> list[Trial]:
        folder = self.folder / "trials"
        found = [folder / name for name in folder.names() if not name.startswith(".")]
        return [Trial(one, about) for one, about in zip(found, folder.each(about_trial, found), strict=True) if about is not None]

    def trial(
        self,
        configuration: Mapping[str, Any],
        seeds: Sequence[int],
        *,
        dataset: Mapping[str, Any] | None = None,
        number: int | None = None,
        choice: Mapping[str, Any] | None = None,
        title: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> Trial:
        """The trial of a configuration and its seeds, created where there is none.

        Args:
            configuration: What decides its results; JSON.
            seeds: Trained together, as a stack.
            dataset: As `describe_dataset` gives it; None: the experiment's.
            number: Of the configuration in a sweep.
            choice: What was chosen for it, see `Trial.choice`; kept without secrets. None: nothing.
            title: What its runs in MLflow are called, but for the seed; empty: after the experiment.
            tags: Of its runs, beside those that every run has.
        """
        begun = configuration if self.first_n_steps is None else {**configuration, "n_steps": self.first_n_steps}
        folder, about = self.folder / "trials" / identity(begun, seeds, number), dataset or self.dataset
        if choice is not None and folder.read_json(CHOICE) is None:  # before the trial is one, so that there is none without it
            folder.write_json(CHOICE, without_secrets_in(choice))
        return Trial.create(folder, configuration, seeds, about, number, title=title, tags=tags)

    @property
    def state(self) -> dict[str, Any]:
        """`status` of the whole, `reason`, and who ran it last: `host`, `pid`, `since`."""
        return self.folder.read_json("state.json") or {"status": "KILLED"}

    def set_state(self, status: Status, reason: str = "") -> None:
        """Keeps the status of the whole. Raises LostError where another command has taken it over."""
        self.lock.check()
        about = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
        self.folder.write_json("state.json", {"status": status, "reason": without_secrets(reason), **about})

    def keep_settings(self, asked: Mapping[str, Any]) -> None:
        """Keeps what was asked for, without secrets, and the folder in which that was. Raises StorageError."""
        self.folder.write_json(_SETTINGS, without_secrets_in({**asked, "working_directory": str(Path.cwd())}))

    @property
    def settings(self) -> dict[str, Any] | None:
        """`job`, `config` and `working_directory`; None where an earlier version began it."""
        return self.folder.read_json(_SETTINGS)

    @property
    def seeds_per_trial(self) -> int | None:
        """How many seeds a trial has, where stacks were split; None: as many as its configuration says."""
        kept = self.folder.read_json(_STACKS)
        return None if kept is None else int(kept["seeds_per_trial"])

    def split(self, seeds_per_trial: int) -> None:
        """Keeps that trials have so many seeds, and deletes those that there are, none of which was begun. Raises StorageError."""
        for trial in self.trials():  # first: a command that is killed in between splits again
            trial.folder.remove()
        self.folder.write_json(_STACKS, {"seeds_per_trial": seeds_per_trial})

    def cancel(self, time_limit: float | None = None) -> None:
        """Asks whoever runs it to stop: what was begun commits its epoch, and a resume goes on from there. Raises StorageError.

        Where the experiment's `time_limit` was met, in seconds, what was begun has finished.
        """
        about = {"host": socket.gethostname(), "time": time.time()}
        self.folder.write_json(_CANCELLED, about if time_limit is None else {**about, "time_limit": time_limit})

    @property
    def is_stopping(self) -> bool:
        """True if a stop was requested since it was begun or resumed."""
        return asked_to_stop(self.folder) is not None

    @property
    def is_cancelled(self) -> bool:
        """True if a user stopped it, not its time limit."""
        return "time_limit" not in (asked_to_stop(self.folder) or {"time_limit": None})

    @property
    def replaced(self) -> list[str]:
        """Keys of the runs of what it replaced, as long as the tracking server may have them."""
        return self.folder.read_json(REPLACED) or []

    def forget_replaced(self) -> None:
        self.folder.delete([REPLACED])

    def discard(self) -> None:
        """Deletes a new experiment in which nothing was begun; of one that it replaced the keys of its runs stay."""
        _clear(self.folder)
        if not self.replaced:
            self.folder.remove()  # with the lock: before it is released, or whoever takes it then would lose a folder
        self.lock.release()

    def close(self) -> None:
        if self.lock.held:
            self.lock.release()


def asked_to_stop(experiment: Folder) -> dict[str, Any] | None:
    """Read the request to stop in an experiment's folder, with the `time_limit` that was met; None: it goes on."""
    return experiment.read_json(_CANCELLED)


def _clear(folder: Folder) -> None:
    """Deletes all but what outlives it; what says that it is an experiment last, so that a killed command can be repeated."""
    for entry in sorted(folder.names(), key=lambda entry: entry == "experiment.json"):
        if entry not in KEPT:
            _remove(folder, entry)


def _remove(folder: Folder, entry: str) -> None:
    path = None if folder.local is None else folder.local / entry
    if "." in entry and (path is None or path.is_file()):
        folder.delete([entry])
    else:
        (folder / entry).remove()
