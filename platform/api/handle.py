"""An experiment in the hand: how it stands, what came of it, and what is to become of it.

Nothing is kept here: whoever has the name and the storage has the experiment, from any process and any machine that sees them.
Where the storage is a cluster's own and not seen from here, status and cancelling go by a short job there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...data.errors import ConfigError, StorageError, did_you_mean
from ..record.jobs import Job, JobName, newest
from ..record.policies import Judgement, Policy, Promotion
from ..record.results import Metrics, Report, Results
from ..record.status import State, Status
from ..results.reading import find_experiment, kept_settings
from ..results.status_reader import StatusReader
from ..settings.config import ExperimentConfig
from ..storage.experiments import CANCELLED, Experiment
from ..storage.folders import Folder
from ..storage.outbox import lines
from ..storage.resuming import check_longer, check_name
from ..storage.trials import Trial
from .configs import config_class
from .places import HERE, Place
from .starting import start

if TYPE_CHECKING:
    from ...data.spec import Environment

_POLL_SECONDS = 1.0
_BEGINS_SECONDS = 60.0  # that a command may take until its experiment is there
_OF_JOBS: dict[str, State] = {"PENDING": "PENDING", "RUNNING": "PENDING", "STOPPED": "KILLED", "SUCCEEDED": "FINISHED"}


class ExperimentHandle:
    """An experiment of a storage, and who runs it; `submit` and `open` give one.

    Raises ConfigError: the name cannot be an experiment's, as `../other`.
    """

    def __init__(self, name: str, storage: str, place: Place) -> None:
        check_name(name)
        self.name, self.storage, self.place = name, storage, place
        self._reader: StatusReader | None = None

    def __repr__(self) -> str:
        return f"ExperimentHandle({self.name!r}, {self.storage!r})"

    # ---- how it stands

    @property
    def folder(self) -> Folder:
        """Where it lies."""
        return Folder(self.storage) / self.name

    def job(self) -> Job | None:
        """The newest job that ran it, as far as anybody knows."""
        return newest(self.place.jobs(self.name, self.storage))

    def status(self) -> Status:
        """How it stands.

        Raises ConfigError: there is none, and nobody is about to begin it; the nearest name is said; StorageError.
        """
        return self.status_with(self.job())

    def status_with(self, job: Job | None) -> Status:
        """Return the `status`, given its newest job."""
        if self._is_seen:
            if self._reader is None:
                self._reader = StatusReader(self.storage, self.name)
            found = self._reader.read(job=job)
        elif job is not None:
            found = self._asked(job) or self._before_it_begins(job)
        else:
            found = StatusReader(self.storage, self.name).read()  # which says that there is none
        if job is not None and job.is_alive and not found.runs and job.started > found.since:  # a resume that has not begun
            return found.model_copy(update={"state": "PENDING", "reason": "its command is starting"})
        return found

    @property
    def _is_seen(self) -> bool:
        return self.folder.read("experiment.json") is not None

    @property
    def _sees_storage(self) -> bool:
        return bool(Folder(self.storage).names())

    @property
    def _is_elsewhere(self) -> bool:
        """True if this machine may not see it: it is in a folder of a cluster."""
        return self.place.address != HERE and "://" not in self.storage

    def _asked(self, job: Job) -> Status | None:
        """Ask the cluster for the status; None: not elsewhere, or not begun yet."""
        if not self._is_elsewhere or job.state == "PENDING":
            return None
        if job.is_alive and time.time() - job.started < _BEGINS_SECONDS and self._sees_storage:
            return None  # a storage that is seen here will show it, sooner than a job could be asked
        try:
            said = self.place.ask("status", [*self._named, "format=json"])
        except ConfigError:
            return None
        return Status.model_validate_json(said).model_copy(update={"job": job})

    @property
    def _named(self) -> list[str]:
        return [self.name, f"storage={self.storage}"]

    def _before_it_begins(self, job: Job) -> Status:
        """Of a job that has not come to the experiment yet, or never did: then its last line says why.

        A judgement by importance sampling alone has no trials and is no experiment; it ends all the same.
        """
        state, reason = _OF_JOBS.get(job.state, "FAILED"), "its command is starting"
        if state == "FINISHED":
            reason = ""
        elif not job.is_alive:
            said = [line for line in self.place.log(job).splitlines() if line.strip()]
            reason = said[-1] if said else job.message or "it ended without a word"
        created, since, folder = job.started, job.ended or job.started, self.folder.name
        return Status(
            name=self.name, folder=folder, state=state, reason=reason, created=created, since=since, now=time.time(), job=job
        )

    def wait(self, timeout: float | None = None) -> Status:
        """How it stands once nothing of it runs any more. Raises TimeoutError after `timeout` seconds, and as `status`."""
        end = None if timeout is None else time.monotonic() + timeout
        while not (found := self.status()).is_over:
            left = _POLL_SECONDS if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{self.name} is {found.state.lower()} after {timeout:g} s.")
            time.sleep(min(left, _POLL_SECONDS))
        return found

    def logs(self, start: int = 0) -> str:
        """Return its newest job's output from character `start` on. Raises ConfigError: no job is known."""
        if (job := self.job()) is None:
            raise ConfigError(f"No job of {self.place.address} has run {self.name} in {self.storage}: there is no log here.")
        return self.place.log(job)[start:]

    # ---- what came of it

    def results(self) -> Results:
        """Read its results so far. Raises ConfigError: there is no experiment; StorageError."""
        from ..results.experiment import results_of

        return results_of(self._experiment())

    def verdicts(self) -> list[str]:
        """Of a sweep, whether seeds show that the best configuration differs from the next one: a sentence for each dataset.

        It reads the curves of every trial. Raises ConfigError: there is no such experiment; StorageError.
        """
        from ..report.verdicts import best_and_next
        from ..results.experiment import results_of

        experiment = self._experiment()
        return best_and_next(results_of(experiment)) if "search" in experiment.configuration and experiment.trials() else []

    def metrics(self, after: int = -1, *, trial: str | None = None) -> list[Metrics]:
        """List the metrics after a gradient step (-1: all), up to each trial's newest checkpoint; of one trial or all.

        Raises ConfigError: there is no such experiment or trial; StorageError.
        """
        trials = self._experiment().trials() if trial is None else [self._trial(trial)]
        return [
            Metrics(trial=one.identity, seed=seed, step=line.step, time=line.time / 1000, metrics=line.metrics)
            for one in trials
            for seed in one.seeds
            for line in lines(one.outbox(seed), after, one.committed)
        ]

    def judgement(self) -> Judgement | None:
        """Read its judgement of policies; None if it judges none or has not finished. Raises StorageError."""
        found = self.folder.read_json("judgement.json")
        return None if found is None else Judgement.model_validate(found)

    def settings(self) -> dict[str, Any]:
        """The `job` and the `config` with which it was begun or resumed last, as `submit` takes them, for another like it.

        Raises ConfigError: there is no such experiment, or it was begun by a d3ray that did not keep them.
        """
        found = kept_settings(self._experiment())
        return {"job": found["job"], "config": found["config"]}

    def report(self, out: str | None = None, *, metric: str | None = None) -> Report:
        """Writes its page, its figures and tables. Arguments and errors as `reports.report`'s."""
        from .reports import report

        return report([self.name], storage=self.storage, out=_contained(out), metric=metric)

    def export(
        self,
        target: str | None = None,
        *,
        format: Literal["onnx", "torchscript", "torch.export", "package"] | None = None,
        seed: int | None = None,
        trial: str | None = None,
        replace: bool = False,
    ) -> Policy:
        """Writes the policy of its best seed, or of another. Arguments and errors as `policies.export`'s, the trial by name."""
        from .policies import export

        source = self._experiment().folder if trial is None else self._trial(trial).folder
        return export(source.name, _contained(target), format=format, seed=seed, replace=replace, storage=self.storage)

    def promote(
        self,
        *,
        by: Literal["play", "estimate"] = "play",
        environment: Environment | str | None = None,
        episodes: int = 100,
        seed: int = 0,
    ) -> Promotion:
        """Makes the candidate of its model the champion, if it passes the gate. Arguments and errors as `policies.promote`'s."""
        from .policies import promote

        return promote(self.name, by=by, environment=environment, episodes=episodes, seed=seed, storage=self.storage)

    # ---- what is to become of it

    def cancel(self, trial: str | None = None) -> None:
        """Asks it, or one of its trials, to stop; heeded at the next epoch, which is kept. `wait` tells when that is.

        The experiment goes on with `resume`. A trial that was cancelled alone stays cancelled. Raises ConfigError: it does not run,
        the trial has ended, or there is no such; StorageError.
        """
        now = self.status()
        if now.is_over:
            raise ConfigError(f"{self.name} does not run: it is {now.state.lower()}.")
        if self._is_seen and now.state == "RUNNING":
            if trial is None:
                self._experiment().cancel()
            else:
                self._cancel_trial(self._trial(trial))
        elif now.state == "RUNNING":
            self.place.ask("cancel", [*self._named, *([] if trial is None else [f"trial={trial}"])])
        elif trial is not None:
            raise ConfigError(f"{self.name} has not begun: it has no trials yet.")
        elif now.job is not None and now.job.is_alive:
            self.place.stop(now.job)
        else:
            self._experiment().cancel()

    def _cancel_trial(self, trial: Trial) -> None:
        from ..worker.decisions import note_stop

        if trial.status:
            raise ConfigError(f"The trial {trial.identity} has ended: there is nothing to cancel.")
        note_stop(trial, 0, CANCELLED)

    def resume(self, trial: str | None = None, *, n_steps: int | None = None, **how: Any) -> ExperimentHandle:
        """Goes on with what is left, or with one of its trials alone, as it was begun; itself.

        Args:
            trial: Which, also one that was cancelled alone; the others stay as they are. None: all but those.
            n_steps: Gradient steps of a seed in all, to train longer than it was begun for; None: as many.
            how: As for `submit`.

        Raises:
            ConfigError: it runs, nothing is left of the trial, there is no such experiment or trial, it is a judgement, whose
                trials go on together, it cannot go on to more steps bit for bit, or it was begun by a d3ray that kept no settings.
        """
        kept = self.settings()
        if n_steps is not None:
            if trial is not None:
                raise ConfigError("n_steps is of all trials: leave the trial out.")
            self._check_longer(n_steps, kept)
            kept["config"] = {**kept["config"], "n_steps": n_steps}
        if trial is not None:
            self._check_goes_on(self._trial(trial), kept["job"])
        folder = (self._experiment().settings or {}).get("working_directory")
        if "working_directory" not in how and self.place.address == HERE and folder and Path(folder).is_dir():
            how["working_directory"] = folder
        start({**kept["config"], "name": self.name, "storage": self.storage}, kept["job"], self.place, resume=trial or True, **how)
        return self

    def _check_goes_on(self, trial: Trial, job: JobName) -> None:
        from ..worker.decisions import check_goes_on

        if job == "judge":
            raise ConfigError(f"{self.name} is a judgement, whose trials go on together: leave the trial out.")
        check_goes_on(trial)

    def _check_longer(self, n_steps: int, kept: Mapping[str, Any]) -> None:
        """Raises ConfigError where it cannot train so long. With plugins, which no code here may import, its job says so."""
        if kept["job"] not in ("train", "sweep"):
            raise ConfigError(f"{self.name} is a {kept['job']}, whose n_steps stay: say another name.")
        begun = self._experiment()
        if n_steps < (now := begun.configuration["n_steps"]):
            raise ConfigError(f"{self.name} trains for {now:,} gradient steps, and n_steps is {n_steps:,}: say more.")
        if n_steps > (first := begun.first_n_steps or now) and not kept["config"].get("plugins"):
            settings = config_class(kept["job"]).checked({**kept["config"], "n_steps": n_steps})
            assert isinstance(settings, ExperimentConfig)
            check_longer(self.name, first, n_steps, settings.why_not_longer)

    def delete(self) -> None:
        """Deletes its folder, its runs in MLflow, and the logs of its jobs here. Its registered model stays.

        Raises ConfigError: it runs, or there is none; StorageError: something cannot be deleted; said again it goes on.
        """
        from ..tracking.deleting import delete

        jobs = self.place.jobs(self.name, self.storage)
        if any(job.is_alive for job in jobs):
            raise ConfigError(f"{self.name} runs: cancel it first.")
        if self._is_seen or not jobs:
            delete(self._experiment(), self.storage)
        elif self.judgement() is not None:
            self.folder.remove()
        for job in jobs:
            self.place.forget(job)
        self._reader = None

    # ---- what it is made of

    def _experiment(self) -> Experiment:
        if not self._is_seen and self._is_elsewhere:
            raise StorageError(
                f"{self.storage} is not seen from this machine: d3ray submit runs the same there, "
                "or let the storage be one that both see."
            )
        return find_experiment(self.storage, self.name)

    def _trial(self, identity: str) -> Trial:
        """One of its trials; names are looked for and not put together, so that none leads elsewhere."""
        trials = {trial.identity: trial for trial in self._experiment().trials()}
        if identity not in trials:
            raise ConfigError(f"{self.name} has no trial {identity!r}{did_you_mean(identity, trials)}", missing=True)
        return trials[identity]


def _contained(path: str | None) -> str | None:
    """The path. Raises ConfigError where it climbs: what is written lies below this folder, or where an absolute path says."""
    if path is not None and ".." in Path(path).parts:
        raise ConfigError(f"{path!r} leads out of where it begins; say the place without '..'.")
    return path
