"""Ray's schedulers over trials whose folders are the memory: what they decide is written there, and read from there again.

Ray's own would stop a trial's process and forget on a restart what it had seen. Here a decision becomes a note in the trial's
folder, which its worker finds before the next epoch and carries out (see decisions.py); and a fresh scheduler first hears every
result that earlier ones had, in order of time. A trial is known by its folder's name, so one that is handed to Tune again stays the
same trial.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, MedianStoppingRule, TrialScheduler

from ..settings.config import ExperimentConfig
from ..settings.objective import Objective
from ..storage.experiments import Experiment
from ..storage.trials import Trial
from ..worker.decisions import Result, note_stop, results, stop_of
from .population import Folders, Population
from .scheduler_config import ASHA, PBT, Median, NoScheduler
from .spaces import Space


def make_scheduler(
    chosen: NoScheduler | ASHA | Median | PBT,
    config: ExperimentConfig,
    experiment: Experiment,
    objective: Objective,
    spaces: Mapping[str, Space],
    population: int,
) -> TrialScheduler | None:
    """The scheduler of a sweep for `driver.run_trials`, with everything that its trials have reported before.

    Args:
        chosen: Which, checked against `config`.
        config: The experiment that is searched around.
        experiment: Whose trials; those that are there are heard at once.
        objective: What they are compared by.
        spaces: Of the settings that population based training changes, by the algorithm's name for them.
        population: How many trials there will be, where `chosen` does not say it.
    """
    match chosen:
        case ASHA():
            rule: TrialScheduler = AsyncHyperBandScheduler(
                "step",
                "objective",
                objective.direction,
                max_t=config.n_steps,
                grace_period=chosen.first_step(config),
                reduction_factor=chosen.reduction_factor,
                brackets=chosen.brackets,
                stop_last_trials=False,  # what is at its end ends by itself; and no result counts at two rungs
            )
        case Median():
            rule = MedianStoppingRule(
                "step",
                "objective",
                objective.direction,
                grace_period=chosen.first_step(config),
                min_samples_required=chosen.min_samples,
                min_time_slice=math.inf,  # pyright: ignore[reportArgumentType] - never pauses a trial to let others catch up
            )
        case PBT():
            return Population(chosen, chosen.steps(config), objective, spaces, experiment, chosen.population or population)
        case _:
            return None
    stopping = Stopping(chosen.name, rule, objective, experiment)
    stopping.hear(experiment.trials())
    return stopping


def told(chosen: NoScheduler | ASHA | Median | PBT, perturbed: Sequence[str] = ()) -> dict[str, Any]:
    """Return the scheduler's part of each trial's config: whether to look for decisions, and when a seed has failed."""
    return {"heeds": chosen.name != "none", "stop_diverging": chosen.stop_diverging, "perturbed": list(perturbed)}


class _Member(NamedTuple):
    """A trial for Ray's rules: they ask for no more than its name."""

    trial_id: str


class Stopping(FIFOScheduler):
    """ASHA or the median rule, as Ray's `rule` decides: stops become notes in trials' folders."""

    def __init__(self, name: str, rule: TrialScheduler, objective: Objective, experiment: Experiment) -> None:
        super().__init__()
        self.name, self.rule, self.objective = name, rule, objective
        self._folders = Folders(experiment)
        self._heard: dict[str, int] = {}  # the newest step of each trial, by its name

    def hear(self, trials: Sequence[Trial]) -> None:
        """Tells the rule what trials have committed, in order of time.

        What became of them then is known: they went on, or a note says where they stopped. Only the last result of one that is not
        done may still want a decision, for whoever was to make it may have died before.
        """
        told = [(one, trial) for trial in trials for one in results(trial, self.objective)]
        last = {trial.identity: one.step for one, trial in told}
        for one, trial in sorted(told, key=lambda pair: (pair[0].time, pair[0].step, pair[1].identity)):
            undecided = one.step == last[trial.identity] and not trial.is_settled and stop_of(trial) is None
            self._hear(trial, one, decide=undecided)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Looks at a result. Whatever comes of it, the worker finds it in its folder: for Tune the trial goes on."""
        self._hear_tune(trial, result, decide=True)
        return TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """Hears the last result of a trial, which is not shown before it has ended."""
        self._hear_tune(trial, result, decide=False)

    def _hear_tune(self, trial: Any, result: Mapping[str, Any], *, decide: bool) -> None:
        if "objective" in result:  # else it was not measured in this epoch
            self._hear(self._folders.of(trial), Result(0, result["step"], result["objective"], 0), decide=decide)

    def _hear(self, trial: Trial, result: Result, *, decide: bool) -> None:
        member = _Member(trial.identity)
        if result.step <= self._heard.get(trial.identity, -1):
            return  # trained again after its worker died: it has been decided about
        if trial.identity not in self._heard:
            self._add(member)
        self._heard[trial.identity] = result.step
        about = {"step": result.step, "objective": result.objective}
        if not decide:
            self.rule.on_trial_complete(None, member, about)  # pyright: ignore[reportArgumentType]
            self._add(member)
        elif self.rule.on_trial_result(None, member, about) == TrialScheduler.STOP:  # pyright: ignore[reportArgumentType]
            note_stop(trial, result.step, f"stopped by {self.name} at step {result.step}")

    def _add(self, member: _Member) -> None:
        """ASHA draws a bracket from NumPy's global generator: here each trial has always the same."""
        before = np.random.get_state()
        np.random.seed(zlib.crc32(member.trial_id.encode()))
        self.rule.on_trial_add(None, member)  # pyright: ignore[reportArgumentType]
        np.random.set_state(before)
