"""Population based training under Tune: weights come from another trial, identity never does.

Ray's own scheduler pauses a trial and starts it anew as a copy of the donor, with the donor's whole config. Here the decision is a
note in the trial's folder with the donor's checkpoint beside it (see decisions.py): before its next epoch the worker loads the
donor's weights and optimisers into its learner, and writes the new coefficients in place. Seeds, random keys, logging step and
MLflow runs stay the trial's own. When a trial is looked at, who is best and worst, and who waits where there are more trials than
slots is as Ray has it (`ray.tune.schedulers.PopulationBasedTraining`, without `synch`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from ...data.errors import StorageError
from ...data.uris import label
from ..settings.objective import Objective
from ..storage.experiments import Experiment
from ..storage.trials import Trial
from ..worker.decisions import Exploit, exploits_of, note_exploit, results
from .scheduler_config import PBT
from .spaces import Space


class Folders:
    """The folders of Tune's trials, each opened once; Tune's notes of them have no credentials."""

    def __init__(self, experiment: Experiment) -> None:
        self._trials = experiment.folder / "trials"
        self._known: dict[str, Trial] = {}

    def of(self, trial: Any) -> Trial:
        identity = label(trial.config["trial"]["folder"])
        if identity not in self._known:
            self._known[identity] = Trial(self._trials / identity)
        return self._known[identity]


@dataclass
class _Member:
    """State of a trial in the population at the newest look."""

    step: int = 0
    score: float | None = None  # larger is better; None: it was not looked at yet


class Population(FIFOScheduler):
    """The trials of a sweep as one population of `size` members, those of earlier runs among them.

    Looks at a trial are `interval` gradient steps apart; `spaces` are of the coefficients that change, by the algorithm's name.
    """

    takes_turns = True  # more members than slots: none may move before all are measured

    def __init__(
        self, chosen: PBT, interval: int, objective: Objective, spaces: Mapping[str, Space], experiment: Experiment, size: int
    ) -> None:
        super().__init__()
        self.chosen, self.interval, self.objective, self.spaces, self.size = chosen, interval, objective, spaces, size
        self._folders = Folders(experiment)
        self._members: dict[Any, _Member] = {}  # by Tune's trial
        self._measured = {t.identity for t in experiment.trials() if t.is_settled or results(t, objective)}  # or past that
        self._failed: dict[str, int] = {}  # seeds that diverged, by identity

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """A member comes, or comes again. Where it stands its folder says."""
        self._members[trial] = _Member()
        folder = self._folders.of(trial)
        for one in results(folder, self.objective):
            self._failed[folder.identity] = one.n_failed
            self._is_due(trial, one.step, one.objective)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Looks at a member, which may have to make room for one that waits."""
        identity = self._folders.of(trial).identity
        self._failed[identity] = result.get("n_failed", 0)
        if "objective" not in result:
            return TrialScheduler.CONTINUE
        self._measured.add(identity)
        if not self._is_due(trial, result["step"], result["objective"]):
            return TrialScheduler.CONTINUE
        worst, best = self._quantiles()
        if trial in worst:
            self._exploit(self._folders.of(trial), result["step"], [self._folders.of(one) for one in best])
        waits = any(one.status in ("PENDING", "PAUSED") for one in tune_controller.get_trials())
        return TrialScheduler.PAUSE if waits else TrialScheduler.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """A member ended: nobody waits for its first result."""
        self._measured.add(self._folders.of(trial).identity)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Do as `on_trial_complete`; a trial that is tried again is added again."""
        self._measured.add(self._folders.of(trial).identity)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Of those that wait the one that has come least far."""
        waiting = [trial for trial in tune_controller.get_trials() if trial.status in ("PENDING", "PAUSED")]
        return min(waiting, key=lambda trial: self._members[trial].step, default=None)

    def _is_due(self, trial: Any, step: int, objective: float) -> bool:
        """Return whether a member is to be looked at again, and if so record this result."""
        if step - self._members[trial].step < self.interval:
            return False
        self._members[trial] = _Member(step, objective if self.objective.direction == "max" else -objective)
        return True

    def _quantiles(self) -> tuple[list[Any], list[Any]]:
        """The worst and the best of those that go on, once all members have been measured: the first two would be both."""
        known = [(one.score, trial) for trial, one in self._members.items() if one.score is not None and not math.isnan(one.score)]
        ranked = [trial for _, trial in sorted(known, key=lambda pair: pair[0]) if not trial.is_finished()]
        n = min(math.ceil(len(ranked) * self.chosen.quantile), len(ranked) // 2)
        return (ranked[:n], ranked[len(ranked) - n :]) if len(self._measured) >= self.size else ([], [])

    def _exploit(self, taker: Trial, step: int, best: Sequence[Trial]) -> None:
        """Writes down what one of the worst takes over. Its donor's checkpoint of that step lies in the donor's folder already."""
        if not (donors := [folder for folder in best if self._fits(taker, folder)]):
            return
        # the same draws whenever this is decided again
        rng = random.Random(f"{taker.identity} {step}")
        donor = rng.choice(sorted(donors, key=lambda one: one.identity))
        now = coefficients(donor, self.spaces)
        _note_newest(taker, donor, step, {name: explore(now[name], space, self.chosen, rng) for name, space in self.spaces.items()})

    def _fits(self, taker: Trial, donor: Trial) -> bool:
        """Return whether weights can be copied: all but coefficients is the same, and no seed of the donor failed."""
        mine, others = (dict(trial.configuration["algorithm"]) for trial in (taker, donor))
        same = {name for name, value in mine.items() if not isinstance(value, float)}
        alike = mine.keys() == others.keys() and all(mine[name] == others[name] for name in same)
        sources = [trial.dataset["fingerprint"] for trial in (taker, donor)]
        return alike and sources[0] == sources[1] and not self._failed.get(donor.identity) and donor.committed >= 0


def _note_newest(taker: Trial, donor: Trial, step: int, coefficients: dict[str, float]) -> None:
    """Decides to go on from the donor's newest checkpoint, which the donor may delete before it is kept: then from a newer one."""
    at = donor.committed
    while True:
        try:
            return note_exploit(taker, Exploit(step, donor.identity, at, coefficients))
        except StorageError:
            before, at = at, donor.committed
            if at == before:
                raise


def coefficients(trial: Trial, names: Mapping[str, Any]) -> dict[str, float]:
    """The coefficients of a trial as they are now: those of its latest exploit, else of its configuration."""
    changed = exploits_of(trial)[-1:]
    now = {**trial.configuration["algorithm"], **(changed[0].coefficients if changed else {})}
    return {name: float(now[name]) for name in names}


def explore(value: float, space: Space, chosen: PBT, rng: random.Random) -> float:
    """A coefficient near another, or drawn anew; always within its space. Where values are counted, near means next."""
    if rng.random() < chosen.resample_probability:
        return float(space.at(rng.random()))
    if space.values is None:
        return min(max(value * rng.choice(chosen.perturb_factors), space.low), space.high)
    ordered = sorted(map(float, space.values))
    nearest = min(range(len(ordered)), key=lambda k: abs(ordered[k] - value))
    return ordered[min(max(nearest + rng.choice((-1, 1)), 0), len(ordered) - 1)]
