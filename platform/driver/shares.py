"""Shares of a GPU, for trials that run out of its memory: they come again with twice as much, up to a whole one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..storage.experiments import Trial
from ..worker.trial_config import note_share, program, what_to_lower


class Shares:
    """What trials were found to need, by kind: those of a kind that come later get as much from the first."""

    def __init__(self) -> None:
        self._needed: dict[str, float] = {}

    def widen(self, trial: Trial, told: Mapping[str, Any]) -> None:
        """Changes what the worker of a trial is told where its kind needs more."""
        if self._needed and (needed := self._needed.get(_kind(told), 0.0)) > told["resources"]["gpu"]:
            note_share(trial, needed)
            told["resources"]["gpu"] = needed

    def goes_on(self, trial: Trial, told: Mapping[str, Any]) -> bool:
        """Whether a trial that has ended is to go on from its checkpoint. One that a whole GPU is too small for has failed."""
        status, had = trial.status, told["resources"]["gpu"]
        if not any(ended.get("out_of_memory") for ended in status.values()):
            return False
        if 0 < had < 1:
            self._needed[_kind(told)] = min(1.0, 2 * had)
            return True
        lower = what_to_lower(len(trial.seeds), trial.configuration["algorithm"])
        reason = f"a whole GPU has too little memory for it: {lower}"
        trial.settle({seed: {**one, "reason": reason} if one.get("out_of_memory") else one for seed, one in status.items()})
        return False


def _kind(told: Mapping[str, Any]) -> str:
    return program({**told, "resources": None})
