"""Shares of a GPU, for trials that run out of its memory: they come again with twice as much, up to a whole one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..storage.trials import Trial
from ..worker.trial_config import note_share, program, too_little


class Shares:
    """GPU shares that trials were found to need, by kind: later ones of a kind get as much from the start."""

    def __init__(self) -> None:
        self._needed: dict[str, float] = {}

    def widen(self, trial: Trial, told: Mapping[str, Any]) -> None:
        """Changes what the worker of a trial is told where its kind needs more."""
        if self._needed and (needed := self._needed.get(_kind(told), 0.0)) > told["resources"]["gpu"]:
            note_share(trial, needed)
            told["resources"]["gpu"] = needed

    def goes_on(self, trial: Trial, told: Mapping[str, Any]) -> bool:
        """Return whether an ended trial is to continue from its checkpoint. One that a whole GPU is too small for has failed."""
        status, had = trial.status, told["resources"]["gpu"]
        if not any(ended.get("out_of_memory") for ended in status.values()):
            return False
        if 0 < had < 1:
            self._needed[_kind(told)] = min(1.0, 2 * had)
            return True
        algorithm = trial.configuration["algorithm"]
        for seed, one in status.items():
            if one.get("out_of_memory"):
                reason = too_little("a whole GPU", len(trial.seeds), algorithm, one.get("lacking"))
                status[seed] = {**one, "reason": reason}
        trial.settle(status)
        return False


def _kind(told: Mapping[str, Any]) -> str:
    return program({**told, "resources": None})
