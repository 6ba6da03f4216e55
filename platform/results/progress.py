"""How far the trials are that a command runs: what its driver knows of them, of epochs too that no checkpoint stands for yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..storage.trials import Status, Trial


@dataclass
class TrialProgress:
    identity: str
    number: int | None  # of its configuration in a sweep
    seeds: tuple[int, ...]
    n_steps: int
    step: int = 0  # gradient steps that each of its seeds has done
    state: Status | None = None  # None: it waits
    reason: str = ""
    metrics: dict[int, Mapping[str, float]] = field(default_factory=dict[int, Mapping[str, float]])  # the last of each, by seed
    objective: float | None = None  # the latest, over its seeds
    moments: deque[tuple[float, int]] = field(default_factory=lambda: deque[tuple[float, int]](maxlen=6))
    # the newest epochs that this driver saw: seconds since 1970, and the step


@dataclass
class Progress:
    """How far the trials are; given to `on_progress` after every epoch of any of them, and before, of what is waited for."""

    trials: dict[str, TrialProgress]  # by identity
    waiting: str = ""  # for what, while no trial can begin yet

    @property
    def done(self) -> int:
        return sum(one.step * len(one.seeds) for one in self.trials.values())

    @property
    def total(self) -> int:
        """Gradient steps that there will be, of the trials that are known."""
        return sum(one.n_steps * len(one.seeds) for one in self.trials.values())

    def add(self, trial: Trial) -> TrialProgress:
        """The entry of a trial, made from its folder where there is none."""
        if trial.identity not in self.trials:
            ended = trial.status
            one = TrialProgress(trial.identity, trial.number, trial.seeds, trial.n_steps)
            one.step = trial.n_steps if trial.is_settled else max(trial.committed, 0)
            if ended:
                one.state, one.reason = overall(ended)
            self.trials[trial.identity] = one
        return self.trials[trial.identity]


OnProgress = Callable[[Progress], None]


def overall(ended: Mapping[int, Mapping[str, Any]]) -> tuple[Status, str]:
    """One status for the seeds of a trial: that of the first that did not finish."""
    for about in ended.values():
        if about["status"] != "FINISHED":
            return about["status"], about.get("reason", "")
    return "FINISHED", next((about["reason"] for about in ended.values() if "reason" in about), "")
