"""Between Tune and d3ray: Tune asks a queue what to run next, the queue a proposer; a callback watches what comes of it."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.search import Searcher as TuneSearcher

from ...data.errors import ConfigError, StorageError
from ...data.uris import label, without_password
from ..cluster.growth import SEEN, growth, room_on
from ..cluster.session import check_ray
from ..results.progress import OnProgress, Progress, overall
from ..storage.experiments import Experiment
from ..storage.trials import Trial
from ..words import resume_command
from ..worker.trial_config import what_to_lower
from .budget import Spent
from .deaths import Deaths
from .fault_log import FILE
from .node_maps import training_nodes
from .proposer import Proposer
from .shares import Shares

_SECONDS_BETWEEN_COUNTS = 5.0  # nodes come and go
_SECONDS_BETWEEN_QUESTIONS = 2.0  # whether the experiment was cancelled


def slots(wanted: dict[str, float]) -> int:
    """Trials with these resources, `cpu` and `gpu` and those of their `actors`, that the cluster has room for at once."""
    import ray

    has = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    found = sum(room_on(resources, wanted) for resources in has)
    if of_actors := wanted.get("actors", 0) * wanted.get("actor_cpu", 0.0):  # which may lie on any node
        return min(found, int(sum(resources.get("CPU", 0.0) for resources in has) / (wanted["cpu"] + of_actors) + 1e-6))
    return found


def most_out(wanted: dict[str, float], grow_to: int | None = None) -> int:
    """Trials that Tune may have at once: those that run, and a few that wait.

    On a cluster of a fixed size a twentieth more than run, so that a worker that is done finds another; more would be proposed
    before the results are there that they could learn from. A cluster that can grow starts nodes for what waits, and for that
    alone: there as many are out as it will have room for, but no more of them wait than its autoscaler is told of.

    Args:
        wanted: Resources of a trial, `cpu` and `gpu`.
        grow_to: Trials that the cluster will have room for; None: what its autoscaler may start, where that is known.
    """
    now, may = max(slots(wanted), 1), growth()
    will = grow_to or (may.room(wanted) if may else 0)
    most = now + max(1, now // 20)
    return max(most, min(will + will // 20, now + SEEN)) if will > now else most


class TrialQueue(TuneSearcher):
    """A proposer as Tune's searcher. It keeps no state of its own: what it knows lies in the trials' folders.

    Args:
        proposer: Who is asked.
        config: Gives what a trial's worker is told, as JSON.
        take_turns: Whether trials wait for one another, as those of a population do: then all are out at once.
        grow_to: See `most_out`.
        max_concurrent: Trials that may be out at once, whatever there is room for; None: no limit.
        spent: Counts what trials take.
        cancelled: Whether no other trial is to begin.

    Attributes:
        refuse: Called with a trial that no node will ever have room for, and why, in place of handing it out; None: it waits.
    """

    def __init__(
        self,
        proposer: Proposer,
        config: Callable[[Trial], dict[str, Any]],
        *,
        take_turns: bool = False,
        grow_to: int | None = None,
        max_concurrent: int | None = None,
        spent: Spent | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(metric="step", mode="max")
        self._proposer, self._config, self._take_turns = proposer, config, take_turns
        self._grow_to, self._max_concurrent, self._spent = grow_to, max_concurrent, spent
        self._cancelled, self._is_cancelled, self._ask_at = cancelled, False, 0.0
        self.refuse: Callable[[Trial, str], None] | None = None
        self._fits = set[tuple[tuple[str, float], ...]]()  # resources that a node had room for once: one that is gone may come back
        self._most, self._until = 1, 0.0  # trials that Tune may have at once, and when that is to be counted again
        self._wanted: dict[str, float] | None = None  # resources of the newest trial
        self._deaths: dict[str, tuple[int, int]] = {}  # of a trial: its newest checkpoint's step, workers that died since
        self._again, self._shares = deque[Trial](), Shares()
        self._told: dict[str, dict[str, Any]] = {}  # the workers of the trials that are out, by Tune's id
        self.trials: dict[str, Trial] = {}  # that Tune has and that have not ended, by Tune's id

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Tune's question for the next trial. As many as the cluster has room for are out at once, and a few that wait for it."""
        if self._max_concurrent is not None and len(self.trials) >= self._max_concurrent:
            return None
        if not self._take_turns and self._wanted is not None and len(self.trials) >= self._room(self._wanted):
            return None
        if self._ends():
            return None if self.trials else TuneSearcher.FINISHED
        while True:
            try:
                trial = self._returned() if self._again else self._proposer.next()
            except StopIteration:
                return None if self.trials else TuneSearcher.FINISHED  # one that is out may have to be handed out again
            if trial is None:
                return None
            told = self._config(trial)
            self._shares.widen(trial, told)
            if self.refuse is None or (why := self._why_never(told["resources"])) is None:
                break
            self.refuse(trial, why)
            self._proposer.ended(trial)
        self.trials[trial_id], self._told[trial_id] = trial, told
        if self._spent is not None:
            self._spent.began(trial.identity)
        if told["resources"] != self._wanted:
            self._wanted, self._until = told["resources"], 0.0
        return {"trial": told}

    def _returned(self) -> Trial:
        trial = self._again.popleft()
        trial.folder.delete(["status.json"])  # it goes on; left there, `reopen` would count a retry, as after a failure
        return trial

    def _ends(self) -> bool:
        """Return whether the experiment was cancelled, checked now and then: a trial that begins meanwhile ends at once."""
        if not self._is_cancelled and time.monotonic() >= self._ask_at:
            self._is_cancelled, self._ask_at = self._cancelled(), time.monotonic() + _SECONDS_BETWEEN_QUESTIONS
        return self._is_cancelled

    def _why_never(self, wanted: dict[str, float]) -> str | None:
        """Why no node will ever have room for a trial: Ray would let it wait without a word. None: one has, had, or may have."""
        key = tuple(sorted(wanted.items()))
        if key not in self._fits:
            try:
                there = training_nodes({"CPU": wanted["cpu"], "GPU": wanted["gpu"]}, grows=self._grow_to is not None)
            except ConfigError as error:
                return str(error)
            if "actors" in wanted and there and not self._grow_to and growth() is None and not slots(wanted):
                return (
                    f"The Ray cluster has fewer CPUs than a trial with its actors takes, {wanted['cpu']:g} and "
                    f"{wanted['actors']:g} times {wanted['actor_cpu']:g}: lower online.actors or resources.actor_cpu."
                )
            self._fits.add(key)
        return None

    def _room(self, wanted: dict[str, float]) -> int:
        """`most_out`, counted anew now and then."""
        if time.monotonic() > self._until:
            self._most, self._until = most_out(wanted, self._grow_to), time.monotonic() + _SECONDS_BETWEEN_COUNTS
        return self._most

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if self._spent is not None:
            self._spent.epoch(result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Hands the end on. After an error `lost` does it, once the folder says why."""
        if not error:
            self.lost(trial_id)

    def died(self, trial_id: str) -> int:
        """Counts a death of a trial's worker; how many there were since its newest checkpoint."""
        trial = self.trials[trial_id]
        at, deaths = self._deaths.get(trial.identity, (-1, 0))
        with suppress(StorageError):  # which cannot be seen just now: then this is one more since the last that was
            committed = trial.committed
            at, deaths = committed, deaths if committed <= at else 0
        self._deaths[trial.identity] = at, deaths + 1
        return deaths + 1

    def deaths(self, trial_id: str) -> int:
        """Of a trial's worker since its newest checkpoint, as far as `died` has counted."""
        return self._deaths.get(self.trials[trial_id].identity, (-1, 0))[1]

    def given_up(self, trial_id: str, most: int) -> bool:
        """Hands a trial out again that Tune gave up before its worker had died more often than `most`; False where it had.

        Where two calls to a worker fail one after the other, as when its node dies, Tune begins the trial again after the first,
        and takes the second for a failure of one that has not begun, which it does not try again.
        """
        if self.deaths(trial_id) > most:
            return False
        self._again.append(self._taken_back(trial_id)[0])
        return True

    def lost(self, trial_id: str) -> None:
        """A trial has ended, and its folder says how."""
        if trial_id in self.trials:
            trial, told = self._taken_back(trial_id)
            if self._shares.goes_on(trial, told):
                self._again.append(trial)
            else:
                self._proposer.ended(trial)

    def _taken_back(self, trial_id: str) -> tuple[Trial, dict[str, Any]]:
        trial = self.trials.pop(trial_id)
        if self._spent is not None:
            self._spent.ended(trial.identity)
        return trial, self._told.pop(trial_id)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps a pickle of its searcher, which nobody reads

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the folders are the memory."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing."""


class Watch(tune.Callback):
    """Keeps a `Progress`, calls `tell` whenever it changed, and settles the trials whose workers could not."""

    def __init__(
        self,
        queue: TrialQueue,
        experiment: Experiment,
        progress: Progress,
        tell: OnProgress | None,
        deaths: Deaths,
        spent: Spent | None = None,
        time_limit: float | None = None,
    ) -> None:
        self._spent, self._time_limit = spent, time_limit
        self._queue, self._experiment, self._progress, self._tell = queue, experiment, progress, tell
        self._deaths, self._cause, self._counted = deaths, "", set[str]()  # workers whose death is counted
        self._look_at = 0.0

    def on_step_begin(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        """Looks now and then whether time is up, and whether there is still a Ray; raises StorageError where there is none."""
        if time.monotonic() >= self._look_at:
            check_ray()
            if self._spent is not None and self._spent.is_time_up and not self._experiment.is_stopping:
                self._experiment.cancel(self._time_limit)
            self._look_at = time.monotonic() + _SECONDS_BETWEEN_QUESTIONS

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        if (ours := self._queue.trials.get(trial.trial_id)) is not None:
            trial.run_metadata.num_failures = self._queue.deaths(trial.trial_id)  # Tune's own count knows of no checkpoint
            self._progress.add(ours).state = "RUNNING"
            self._changed()

    def on_trial_result(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, result: dict[str, Any], **info: Any
    ) -> None:
        one = self._progress.trials[_identity(trial)]
        one.step, one.state = max(result["step"], one.step), "RUNNING"
        one.objective = result.get("objective", one.objective)
        one.moments.append((time.time(), one.step))
        one.metrics.update({int(seed): metrics for seed, metrics in result.get("seeds", {}).items()})
        self._changed()

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Its end, good or bad: the folder says which, or where that could not be written the last result."""
        self._end(_identity(trial), str((trial.last_result or {}).get("failed") or "it ended without saying why"))

    def on_trial_recover(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        if (ours := self._queue.trials.get(trial.trial_id)) is not None and self._counts_death(trial.trial_id):
            self._say_died(ours, trial)

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        if (ours := self._queue.trials.get(trial.trial_id)) is not None:
            new, deaths = self._counts_death(trial.trial_id), self._queue.deaths(trial.trial_id)
            if deaths <= trial.max_failures and new:
                self._say_died(ours, trial)
            if self._queue.given_up(trial.trial_id, trial.max_failures):
                self._progress.add(ours).state = None
                self._changed()
            else:
                times = "once" if deaths == 1 else f"{deaths} times without a checkpoint between, at last"
                self._end(ours.identity, f"its worker died {times}: {self._cause}{self._cure(ours)}")
                self._queue.lost(trial.trial_id)
        trial.run_metadata.pickled_error_filename = None  # a pickle in the storage, which Tune would read at its end

    def _counts_death(self, trial_id: str) -> bool:
        """Counts the death that Tune has just been told of; False where it was of a worker whose death was counted before."""
        check_ray()  # else workers died of that, and no other will come
        if self._deaths.worker in self._counted:
            return False
        self._counted.add(self._deaths.worker)
        self._cause = self._deaths.cause()
        self._queue.died(trial_id)
        return True

    def _say_died(self, ours: Trial, trial: TuneTrial) -> None:
        logging.getLogger("d3ray").warning(
            "%s: its worker died: %s. Another goes on from %s, restart %d of %d without a checkpoint between. Ray's words: %s/%s",
            ours.identity,
            self._cause,
            "the newest checkpoint" if ours.committed >= 0 else "the beginning",
            self._queue.deaths(trial.trial_id),
            trial.max_failures,
            without_password(self._experiment.folder.name),
            FILE,
        )

    def _cure(self, trial: Trial) -> str:
        """Suggest what to lower if memory was short; else empty."""
        if not self._deaths.is_short_of_memory:
            return ""
        cures = what_to_lower(len(trial.seeds), trial.configuration["algorithm"])
        return f"; {cures}, or let fewer trials run at a time by a larger resources.cpu"

    def refuse(self, trial: Trial, why: str) -> None:
        """One that is not handed out has failed."""
        self._progress.add(trial)
        self._end(trial.identity, why)

    def _end(self, identity: str, reason: str) -> None:
        one = self._progress.trials[identity]
        folder = Trial(self._experiment.folder / "trials" / identity)
        _settle_lost(folder, reason)
        one.state, one.reason = overall(folder.status)
        self._changed()

    def _changed(self) -> None:
        self._experiment.lock.check()  # where another command has taken the experiment over, this one ends
        if self._tell is not None:
            self._tell(self._progress)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps a pickle of its callbacks, which nobody reads


def _settle_lost(trial: Trial, reason: str) -> None:
    """Says of a trial that ended without a word why: its worker died, or could not write it down. Raises StorageError."""
    if not trial.status:
        reason = reason.rstrip(".")
        ended = {"status": "FAILED", "reason": reason, "step": max(trial.committed, 0)}
        try:
            trial.settle(dict.fromkeys(trial.seeds, ended))
        except StorageError:  # of the same cause, most likely: a disk that is full
            go_on = resume_command(trial.folder.above.above.name)
            raise StorageError(f"The trial {trial.identity} failed: {reason}; once that is mended, {go_on} goes on.") from None


def _identity(trial: TuneTrial) -> str:
    return label(trial.config["trial"]["folder"])
