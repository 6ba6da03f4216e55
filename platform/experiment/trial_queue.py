"""Between Tune and d3ray: Tune asks a queue what to run next, the queue a proposer; a callback watches what comes of it."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.search import Searcher

from ..storage.experiments import Experiment, Trial
from .driver import OnProgress, Progress, overall, settle_lost
from .proposer import Proposer

_SECONDS_BETWEEN_COUNTS = 5.0  # nodes come and go


def slots(wanted: dict[str, float]) -> int:
    """Trials with these resources, `cpu` and `gpu`, that the nodes of the cluster have room for at once."""
    import ray

    found = 0
    for node in ray.nodes():
        if node["Alive"]:
            cpu, gpu = (node["Resources"].get(name, 0.0) for name in ("CPU", "GPU"))
            fit = [_times(cpu, wanted["cpu"])] if wanted["cpu"] else []
            if (share := wanted["gpu"]) > 0:
                fit.append(_times(gpu, share) if share >= 1 else int(gpu) * _times(1.0, share))
            found += min(fit, default=1)
    return found


def _times(has: float, wanted: float) -> int:
    """How often it fits, as exact as Ray counts: 0.1 fits ten times into 1."""
    return int(has / wanted + 1e-6)


class TrialQueue(Searcher):
    """A proposer as Tune's searcher. It keeps no state of its own: what it knows lies in the trials' folders.

    Args:
        proposer: Who is asked.
        config: What a trial's worker is told, as JSON.
        take_turns: Whether trials wait for one another, as those of a population do: then all are out at once, and Tune has more
            than run.
    """

    def __init__(self, proposer: Proposer, config: Callable[[Trial], dict[str, Any]], *, take_turns: bool = False) -> None:
        super().__init__(metric="step", mode="max")
        self._proposer, self._config, self._take_turns = proposer, config, take_turns
        self._most, self._until = 1, 0.0  # trials that Tune may have at once, and when that is to be counted again
        self._wanted: dict[str, float] | None = None  # resources of the newest trial
        self._deaths = Counter[str]()  # of workers of a trial, over what Tune takes for several trials
        self._again = deque[Trial]()
        self.trials: dict[str, Trial] = {}  # that Tune has and that have not ended, by Tune's id

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Tune's question for the next trial. As many as the cluster has room for are out at once, and a few that wait for it."""
        if not self._take_turns and self._wanted is not None and len(self.trials) >= self._room(self._wanted):
            return None
        try:
            trial = self._again.popleft() if self._again else self._proposer.next()
        except StopIteration:
            return None if self.trials else Searcher.FINISHED  # one that is out may have to be handed out again
        if trial is None:
            return None
        self.trials[trial_id] = trial
        told = self._config(trial)
        if told["resources"] != self._wanted:
            self._wanted, self._until = told["resources"], 0.0
        return {"trial": told}

    def _room(self, wanted: dict[str, float]) -> int:
        """Trials that may be out: those that run at once, and a twentieth more, so that a worker that is done finds another.

        More would be proposed before the results are there that they could learn from.
        """
        if time.monotonic() > self._until:
            at_once = max(slots(wanted), 1)
            self._most, self._until = at_once + max(1, at_once // 20), time.monotonic() + _SECONDS_BETWEEN_COUNTS
        return self._most

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Hands an epoch on."""
        if trial_id in self.trials:
            self._proposer.reported(self.trials[trial_id], result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Hands the end on. After an error `lost` does it, once the folder says why."""
        if not error and trial_id in self.trials:
            self._proposer.ended(self.trials.pop(trial_id))

    def given_up(self, trial_id: str, deaths: int, most: int) -> bool:
        """Hands a trial out again that Tune gave up before its worker had died more often than `most`; False where it had.

        Where two calls to a worker fail one after the other, as when its node dies, Tune begins the trial again after the first,
        and takes the second for a failure of one that has not begun, which it does not try again.
        """
        trial = self.trials[trial_id]
        self._deaths[trial.identity] += deaths
        if self._deaths[trial.identity] > most:
            return False
        self._again.append(self.trials.pop(trial_id))
        return True

    def lost(self, trial_id: str) -> None:
        """A trial's worker died for good, and its folder says so now."""
        if trial_id in self.trials:
            self._proposer.ended(self.trials.pop(trial_id))

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps a pickle of its searcher, which nobody reads

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the folders are the memory."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing."""


class Watch(tune.Callback):
    """Keeps a `Progress`, and settles the trials whose workers could not.

    Args:
        queue: That gives Tune its trials.
        experiment: Theirs.
        progress: What is kept.
        tell: Called with it whenever it changed.
    """

    def __init__(self, queue: TrialQueue, experiment: Experiment, progress: Progress, tell: OnProgress | None) -> None:
        self._queue, self._experiment, self._progress, self._tell = queue, experiment, progress, tell

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """A worker takes it up."""
        if (ours := self._queue.trials.get(trial.trial_id)) is not None:
            self._progress.add(ours).state = "RUNNING"
            self._changed()

    def on_trial_result(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, result: dict[str, Any], **info: Any
    ) -> None:
        """An epoch."""
        one = self._progress.trials[_identity(trial)]
        one.step, one.state = max(result["step"], one.step), "RUNNING"
        one.objective = result.get("objective", one.objective)
        one.moments.append((time.time(), one.step))
        one.metrics.update({int(seed): metrics for seed, metrics in result.get("seeds", {}).items()})
        self._changed()

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Its end, good or bad: the folder says which."""
        self._end(_identity(trial))

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Its worker died, for good or as Tune believes."""
        if (ours := self._queue.trials.get(trial.trial_id)) is not None:
            if self._queue.given_up(trial.trial_id, trial.num_failures, trial.max_failures):
                self._progress.add(ours).state = None
                self._changed()
            else:
                last = str(trial.get_error() or "it ended without a word").strip().splitlines()[-1]
                settle_lost(ours, f"its worker died {trial.num_failures} times, at last: {last}")
                self._queue.lost(trial.trial_id)
                self._end(ours.identity)
        trial.run_metadata.pickled_error_filename = None  # a pickle in the storage, which Tune would read at its end

    def _end(self, identity: str) -> None:
        one = self._progress.trials[identity]
        folder = Trial(self._experiment.folder / "trials" / identity)
        settle_lost(folder, "it ended without saying why")
        one.state, one.reason = overall(folder.status)
        self._changed()

    def _changed(self) -> None:
        if self._tell is not None:
            self._tell(self._progress)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps a pickle of its callbacks, which nobody reads


def _identity(trial: TuneTrial) -> str:
    return str(trial.config["trial"]["folder"]).partition("?")[0].rpartition("/")[2]
