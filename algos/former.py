"""Names that d3ray's documents once showed. They work until the next minor version, and say what to write."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any

PACKAGE = __name__.partition(".")[0]
MODULES = {
    "algos.behaviour_model": "algos.behaviour.behaviour_model",
    "algos.callbacks": "algos.learning.callbacks",
    "algos.environments.datasets": "datasets",
    "algos.held_out": "algos.judging.held_out",
    "algos.loggers": "algos.saving.loggers",
    "algos.package": "algos.export.package",
    "algos.remembering": "algos.acting.remembering",
    "data.mdp_dataset": "mdp_dataset",
    "platform.experiment.config": "platform.settings.config",
    "platform.experiment.objective": "platform.settings.objective",
    "platform.experiment.status_reader": "platform.results.status_reader",
}


def warn_of(former: str, now: str, stacklevel: int = 3) -> None:
    """Says that a name is another one now."""
    warnings.warn(f"{former} is deprecated: write {now}.", DeprecationWarning, stacklevel=stacklevel)


class _Moved(ModuleType):
    """A module by its former name, which loads the present one when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        now = f"{PACKAGE}.{MODULES[self.__name__.partition('.')[2]]}"
        warn_of(self.__name__, now)
        return getattr(import_module(now), name)


def keep_moved_modules() -> None:
    """From here on modules can be imported by their former names."""
    for name in (f"{PACKAGE}.{former}" for former in MODULES):
        sys.modules.setdefault(name, _Moved(name))
