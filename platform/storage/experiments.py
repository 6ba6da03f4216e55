"""Experiments and trials as folders: who may write, what has been reached, and what became of it.

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

import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args
from uuid import uuid4

from ...data.errors import ConfigError, StorageError
from ...data.uris import without_secrets, without_secrets_in
from .folders import Folder, json_bytes
from .locks import Lock

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
Package = Literal["policy", "model"]
PACKAGES: tuple[Package, ...] = get_args(Package)
FORMAT = 1
CANCELLED = "cancelled"  # why a trial ended, where somebody wanted that
CHOICE = "choice.json"  # in a trial's folder; see `Trial.choice`
_CANCELLED = "cancelled.json"
_SETTINGS = "settings.json"
_REPLACED = "replaced.json"
_STACKS = "stacks.json"
_KEPT = ("lock", _REPLACED)  # what outlives an experiment that is deleted
Longer = Callable[[int], str]  # of the steps that were begun for: why training cannot go on to more, a clause; empty: it can
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")


class Trial:
    """The folder of a trial, for whoever reads it; `writer.Writer` is the one that writes."""

    def __init__(self, folder: Folder, about: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        about = about or _about(folder)
        if about is None:
            raise StorageError(
                f"{folder} is no trial: on {socket.gethostname()} it has no trial.json. Every machine that trains must see the "
                "storage."
            )
        self.key: str = about["key"]
        self.configuration: dict[str, Any] = about["configuration"]
        self.dataset: dict[str, Any] = about["dataset"]
        self.number: int | None = about["number"]  # of its configuration in a sweep, in the order in which they were proposed
        self.seeds: tuple[int, ...] = tuple(about["seeds"])
        self.runs: dict[int, str] = {int(seed): key for seed, key in about["runs"].items()}
        self.title: str = about.get("title", "")  # what its runs are called, but for the seed; empty: after the experiment
        self.tags: dict[str, str] = about.get("tags", {})  # of its runs, beside those that every run has

    @classmethod
    def create(
        cls,
        folder: Folder,
        configuration: Mapping[str, Any],
        seeds: Sequence[int],
        dataset: Mapping[str, Any],
        number: int | None = None,
        *,
        title: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> Self:
        """The trial of a folder, made where there is none yet."""
        if (there := _about(folder)) is not None:
            return cls(folder, there)
        about = {"format": FORMAT, "key": uuid4().hex, "number": number, "configuration": dict(configuration)}
        about |= without_secrets_in({"title": title, "tags": dict(tags or {})}) if tags or title else {}
        runs = {str(seed): uuid4().hex for seed in seeds}
        folder.write_json("trial.json", {**about, "dataset": without_secrets_in(dataset), "seeds": list(seeds), "runs": runs})
        return cls(folder)

    @property
    def identity(self) -> str:
        """Its folder's name."""
        return self.folder.label

    @property
    def n_steps(self) -> int:
        """Gradient steps that each of its seeds is to do."""
        return int(self.configuration["n_steps"])

    @property
    def status(self) -> dict[int, dict[str, Any]]:
        """How each seed ended; empty while it has not.

        `status`, and where they are known `reason`, `first_bad_step`, `step`, `metrics` (the last), `best` (metric, value, step),
        `warning`, `time_limit` (that ended it, by whose it was).
        """
        return {int(seed): ended for seed, ended in (self.folder.read_json("status.json") or {}).items()}

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to do: every seed finished, or failed in a way that would come again."""
        ended = self.status
        return len(ended) == len(self.seeds) and all(e["status"] == "FINISHED" or e.get("final") for e in ended.values())

    @property
    def is_begun(self) -> bool:
        """Whether a worker has had it, it has ended, or the tracking server knows of it."""
        return bool(self.worker or self.status or self.delivered)

    @property
    def committed(self) -> int:
        """The newest checkpoint's step; -1 where there is none."""
        steps = (self.folder / "checkpoints").checkpoint_steps()
        return steps[-1] if steps else -1

    @property
    def worker(self) -> dict[str, Any] | None:
        """The newest attempt: `attempt`, `host`, `machine`; None while there was none."""
        return self.folder.read_json("worker.json")

    @property
    def choice(self) -> dict[str, Any] | None:
        """What was chosen for it, by dotted name, in a sweep or a benchmark; None elsewhere."""
        return self.folder.read_json(CHOICE)

    @property
    def choice_at_end(self) -> dict[str, Any]:
        """`choice` with what a population has changed of it so far; empty where nothing was chosen."""
        choice, reached = dict(self.choice or {}), self.committed
        for exploit in self.folder.read_json("exploits.json") or []:
            if exploit["step"] < reached:  # it has trained on with them
                choice |= {f"algorithm.{name}": value for name, value in exploit["coefficients"].items()}
        return choice

    def outbox(self, seed: int) -> Folder:
        """Where a seed's metrics lie."""
        return self.folder / "outbox" / f"seed-{seed}"

    def package(self, seed: int) -> Folder | None:
        """What a seed has left to be taken away: its policy's package, or a model's; None: nothing."""
        places = (self.folder / kind / f"seed-{seed}" for kind in PACKAGES)
        return next((place for place in places if place.names()), None)

    @property
    def delivered(self) -> dict[int, dict[str, Any]]:
        """What the tracking server has of each seed: `run`, `step` (the newest), `status`, `model` and others."""
        return {int(seed): note for seed, note in (self.folder.read_json("delivered.json") or {}).items()}

    def note_delivered(self, delivered: Mapping[int, Mapping[str, Any]]) -> None:
        """Keeps what the tracking server has."""
        self.folder.write_json("delivered.json", {str(seed): dict(note) for seed, note in delivered.items()})

    def settle(self, status: Mapping[int, Mapping[str, Any]], check: Callable[[], None] | None = None) -> None:
        """Keeps how the seeds ended, unless `check` raises: see `Folder.write_checked`."""
        ended = json_bytes({str(seed): without_secrets_in(about) for seed, about in status.items()})
        if check is None:
            self.folder.write("status.json", ended)
        else:
            self.folder.write_checked("status.json", ended, check)

    @property
    def retried(self) -> int:
        """How often it was tried again after it had failed, over all resumes."""
        return int(self.folder.read("retried") or 0)

    def reopen(self) -> None:
        """Forgets how it ended, because it goes on; after a failure that counts as a retry."""
        if any(about["status"] == "FAILED" and not about.get("final") for about in self.status.values()):
            self.folder.write("retried", str(self.retried + 1).encode())
        self.folder.delete(["status.json"])

    @property
    def goes_on_longer(self) -> bool:
        """Whether it has done all of its steps, and would do more: a seed has finished, and not because of a limit of time."""
        return any(about["status"] == "FINISHED" and "time_limit" not in about for about in self.status.values())

    def _deliver_end_anew(self) -> None:
        """Forgets that the tracking server has had what it left and came to, which will be others."""
        anew = ("model", "registered", "scored")
        if delivered := self.delivered:
            self.note_delivered({seed: {k: v for k, v in note.items() if k not in anew} for seed, note in delivered.items()})

    def lengthen(self, n_steps: int) -> None:
        """Has it train up to a later step, also where it had finished. A command that is killed in between does it again."""
        if self.n_steps >= n_steps:
            return
        if self.goes_on_longer:
            self._deliver_end_anew()
            self.folder.delete(["status.json"])
        self.configuration = {**self.configuration, "n_steps": n_steps}
        self.folder.write_json("trial.json", {**self.folder.read_json("trial.json"), "configuration": self.configuration})

    def give_up_after(self, retries: int) -> None:
        """Makes its failures final where it was tried again so often, and no longer final where more retries are allowed now.

        What diverged, or what a scheduler stopped, stays final: it would come again.
        """
        ended, used_up = self.status, self.retried >= retries
        changed = dict(ended)
        for seed, about in ended.items():
            if about["status"] == "FAILED" and (not about.get("final") or about.get("retries_used")):
                changed[seed] = {**about, "final": used_up, "retries_used": used_up}
        if changed != ended:
            self.settle(changed)

    def allow(self, time_limits: Mapping[str, float | None]) -> None:
        """Opens it again where a time limit ended it that is larger now.

        Args:
            time_limits: Seconds that there are now, of the `trial` and of the `experiment`; None: no limit.
        """
        met = next((about["time_limit"] for about in self.status.values() if "time_limit" in about), {})
        if met and all((now := time_limits[kind]) is None or now > seconds for kind, seconds in met.items()):
            self._deliver_end_anew()
            self.folder.delete(["status.json"])


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
        folder = _ours(storage, name)
        lock = Lock(folder)
        if not lock.acquire(wait=resume):
            raise _is_running(storage, name, folder)
        try:
            there = folder.read_json("experiment.json")
            configuration, dataset = _fitting(storage, name, there, configuration, dataset, longer, resume=resume, replace=replace)
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
                folder.write_json(_REPLACED, list(dict.fromkeys(keys)))  # some are there where deleting was begun and killed
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
        """Every trial that was created, by name."""
        folder = self.folder / "trials"
        found = [folder / name for name in folder.names() if not name.startswith(".")]
        return [Trial(one, about) for one, about in zip(found, folder.each(_about, found), strict=True) if about is not None]

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

        Args:
            time_limit: The experiment's, in seconds, where that was met: then what was begun has finished.
        """
        about = {"host": socket.gethostname(), "time": time.time()}
        self.folder.write_json(_CANCELLED, about if time_limit is None else {**about, "time_limit": time_limit})

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has asked for that since it was begun or resumed."""
        return asked_to_stop(self.folder) is not None

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has, and not its time limit."""
        return "time_limit" not in (asked_to_stop(self.folder) or {"time_limit": None})

    @property
    def replaced(self) -> list[str]:
        """Keys of the runs of what it replaced, as long as the tracking server may have them."""
        return self.folder.read_json(_REPLACED) or []

    def forget_replaced(self) -> None:
        """Those runs are deleted."""
        self.folder.delete([_REPLACED])

    def discard(self) -> None:
        """Deletes a new experiment in which nothing was begun; of one that it replaced the keys of its runs stay."""
        _clear(self.folder)
        if not self.replaced:
            self.folder.remove()  # with the lock: before it is released, or whoever takes it then would lose a folder
        self.lock.release()

    def close(self) -> None:
        """Gives up the lock."""
        if self.lock.held:
            self.lock.release()


def _about(folder: Folder) -> Any:
    return folder.read_json("trial.json")


def identity(configuration: Mapping[str, Any], seeds: Sequence[int], number: int | None = None) -> str:
    """A trial's name: its configuration's number in a sweep, its algorithm, a hash of its configuration, its seeds."""
    text = json.dumps(configuration, sort_keys=True, allow_nan=False)
    label = str(configuration.get("algorithm", {}).get("name", "trial")).replace("/", "-")
    listed = "-".join(map(str, seeds))
    if len(seeds) > 4:
        listed = f"{seeds[0]}-to-{seeds[-1]}-{hashlib.sha256(listed.encode()).hexdigest()[:6]}"
    counted = "" if number is None else f"{number:05d}-"
    return f"{counted}{label}-{hashlib.sha256(text.encode()).hexdigest()[:10]}-seed{'s' * (len(seeds) > 1)}-{listed}"


def asked_to_stop(experiment: Folder) -> dict[str, Any] | None:
    """What is there where the experiment of a folder is to end, with the `time_limit` that was met; None: it goes on."""
    return experiment.read_json(_CANCELLED)


def check_name(name: str) -> None:
    """Raises ConfigError where a name cannot be a folder's and a registered model's."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"The name {name!r} cannot be a folder's: use letters, digits, '-', '_', '.' and '+', a letter or digit first."
        )


def check_free(
    storage: str,
    name: str,
    configuration: Mapping[str, Any],
    dataset: Mapping[str, Any],
    longer: Longer | None = None,
    *,
    resume: bool,
    replace: bool,
) -> None:
    """Raises ConfigError where `Experiment.begin` would for what is there. Nothing is changed; another may come first."""
    folder = _ours(storage, name)
    if (there := folder.read_json("experiment.json")) is None:
        return
    if not resume:
        lock = Lock(folder)
        if not lock.acquire(wait=False):
            raise _is_running(storage, name, folder)
        lock.release()
    _fitting(storage, name, there, configuration, dataset, longer, resume=resume, replace=replace)


def _ours(storage: str, name: str) -> Folder:
    """The folder of a name. Raises ConfigError where it holds what `discard` and `replace` would delete and is not ours."""
    check_name(name)
    folder = Folder(storage) / name
    strange = [entry for entry in folder.names() if entry not in _KEPT and not entry.startswith(".")]
    if strange and folder.read("experiment.json") is None:
        raise ConfigError(f"{folder} holds {strange[0]!r} and is no experiment: say another name or storage.")
    return folder


def _fitting(
    storage: str,
    name: str,
    there: Mapping[str, Any] | None,
    configuration: Mapping[str, Any],
    dataset: Mapping[str, Any],
    longer: Longer | None,
    *,
    resume: bool,
    replace: bool,
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Configuration and dataset as they are kept. Raises ConfigError where what is there is in the way, or was begun otherwise."""
    configuration, dataset = without_secrets_in(configuration), without_secrets_in(dataset)
    if there is not None and not (resume or replace):
        further = ", also to a larger n_steps" if longer is not None else ""
        raise ConfigError(
            f"There is an experiment {name!r} in {storage} already: say --resume to go on with it{further}, --replace to delete "
            "it, or another name."
        )
    if there is not None and resume:
        _check_same(name, there, configuration, dataset, longer)
    return configuration, dataset


def _is_running(storage: str, name: str, folder: Folder) -> ConfigError:
    return ConfigError(f"The experiment {name!r} in {storage} is running: {_holder(folder)}. Wait for it, or stop it first.")


def _holder(folder: Folder) -> str:
    state = folder.read_json("state.json") or {}
    return f"process {state['pid']} on {state['host']}" if "pid" in state else "another command has just begun it"


def _clear(folder: Folder) -> None:
    """Deletes all but what outlives it; what says that it is an experiment last, so that a killed command can be repeated."""
    for entry in sorted(folder.names(), key=lambda entry: entry == "experiment.json"):
        if entry not in _KEPT:
            _remove(folder, entry)


def _remove(folder: Folder, entry: str) -> None:
    path = None if folder.local is None else folder.local / entry
    if "." in entry and (path is None or path.is_file()):
        folder.delete([entry])
    else:
        (folder / entry).remove()


def _check_same(
    name: str, there: Mapping[str, Any], configuration: Mapping[str, Any], dataset: Mapping[str, Any], longer: Longer | None
) -> None:
    """Raises ConfigError naming the first setting in which an experiment was begun differently, or why it cannot be longer."""
    before = without_secrets_in(there["configuration"])
    steps, first = configuration.get("n_steps", 0), there.get("first_n_steps", before.get("n_steps", 0))
    grown = longer is not None and steps != first and steps >= before["n_steps"]
    apart = {"budget": None, **({"n_steps": None} if grown else {})}  # which may be raised
    check_settings(name, {**before, **apart}, {**configuration, **apart})
    if there["dataset"]["fingerprint"] != dataset["fingerprint"]:
        raise ConfigError(
            f"The experiment {name!r} was begun with other data: the dataset {there['dataset']['name']!r} had another fingerprint "
            f"than {dataset['name']!r} has now."
        )
    if longer is not None and grown:
        check_longer(name, first, steps, longer)


def check_longer(name: str, first: int, n_steps: int, longer: Longer) -> None:
    """Raises ConfigError where an experiment that was begun for `first` gradient steps cannot go on to `n_steps`."""
    if why := longer(first):
        raise ConfigError(
            f"The experiment {name!r} was begun for {first:,} gradient steps and cannot go on to {n_steps:,}, for {why}. To train "
            f"{n_steps:,} from the start, say another name, or --replace."
        )


def check_settings(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises ConfigError naming the first setting that an experiment was begun with another value of."""
    was, is_now = dict(flatten(before)), dict(flatten(now))
    for key in [*was, *(key for key in is_now if key not in was)]:
        if was.get(key) != is_now.get(key):
            raise ConfigError(
                f"The experiment {name!r} was begun with {key} {was.get(key)!r}, and now {key} is {is_now.get(key)!r}: "
                "say the earlier value, --replace, or another name."
            )


def flatten(value: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    """The values of a nested mapping by dotted name."""
    found: list[tuple[str, Any]] = []
    for key, entry in value.items():
        found += flatten(entry, f"{above}{key}.") if isinstance(entry, Mapping) and entry else [(f"{above}{key}", entry)]
    return found


def is_better(metric: str, value: float, than: float) -> bool:
    """Whether a value of a metric is better: the larger, of losses and errors the smaller."""
    return value < than if is_cost(metric) else value > than


_TURNED = ("discounted_sum_of_advantage", "average_value_estimation", "value_estimation_std", "continuous_action_diff")


def is_cost(metric: str) -> bool:
    """Whether the smaller value of a metric is the better one: of losses, of errors, and of scorers whose sign is turned round."""
    return "loss" in metric or "error" in metric or metric.removeprefix("scorers/") in _TURNED
