"""Trials as folders: what has been reached, and what became of it. `experiments.py` says where they lie and what is in them."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, get_args
from uuid import uuid4

from ...data.errors import StorageError
from ...data.uris import without_secrets_in
from .folders import Folder, json_bytes

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
Package = Literal["policy", "model"]
PACKAGES: tuple[Package, ...] = get_args(Package)
FORMAT = 1
CHOICE = "choice.json"  # in a trial's folder; see `Trial.choice`


class Trial:
    """The folder of a trial, for whoever reads it; `writer.Writer` is the one that writes."""

    def __init__(self, folder: Folder, about: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        about = about or about_trial(folder)
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
        if (there := about_trial(folder)) is not None:
            return cls(folder, there)
        about = {"format": FORMAT, "key": uuid4().hex, "number": number, "configuration": dict(configuration)}
        about |= without_secrets_in({"title": title, "tags": dict(tags or {})}) if tags or title else {}
        runs = {str(seed): uuid4().hex for seed in seeds}
        folder.write_json("trial.json", {**about, "dataset": without_secrets_in(dataset), "seeds": list(seeds), "runs": runs})
        return cls(folder)

    @property
    def identity(self) -> str:
        return self.folder.label

    @property
    def n_steps(self) -> int:
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
        """True if nothing is left to do: every seed finished, or failed in a way that would recur."""
        ended = self.status
        return len(ended) == len(self.seeds) and all(e["status"] == "FINISHED" or e.get("final") for e in ended.values())

    @property
    def is_begun(self) -> bool:
        """True if a worker has had it, it has ended, or the tracking server knows of it."""
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
        """Values chosen for it, by dotted name, in a sweep or a benchmark; None elsewhere."""
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
        return self.folder / "outbox" / f"seed-{seed}"

    def package(self, seed: int) -> Folder | None:
        """Return the package that a seed has left, of its policy or of a model; None: nothing."""
        places = (self.folder / kind / f"seed-{seed}" for kind in PACKAGES)
        return next((place for place in places if place.names()), None)

    @property
    def delivered(self) -> dict[int, dict[str, Any]]:
        """Each seed's state at the tracking server: `run`, `step` (the newest), `status`, `model` and others."""
        return {int(seed): note for seed, note in (self.folder.read_json("delivered.json") or {}).items()}

    def note_delivered(self, delivered: Mapping[int, Mapping[str, Any]]) -> None:
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
        """True if it has done all of its steps and could go on: a seed has finished, and not because of a limit of time."""
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
        """Opens it again where a time limit ended it that is larger now, or gone: the `trial`'s, the `experiment`'s."""
        met = next((about["time_limit"] for about in self.status.values() if "time_limit" in about), {})
        if met and all((now := time_limits[kind]) is None or now > seconds for kind, seconds in met.items()):
            self._deliver_end_anew()
            self.folder.delete(["status.json"])


def about_trial(folder: Folder) -> Any:
    """Read a trial's `trial.json`; None: it is no trial."""
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
