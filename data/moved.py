"""Modules under other names: those that documents once showed, and d3rlpy's; importing one gives the module where it stands."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

PACKAGE = __name__.partition(".")[0]
MOVED = {
    "algos.behaviour_model": "algos.behaviour.behaviour_model",
    "algos.callbacks": "algos.learning.callbacks",
    "algos.held_out": "algos.judging.held_out",
    "algos.loggers": "algos.saving.loggers",
    "algos.package": "algos.export.package",
    "algos.remembering": "algos.acting.remembering",
    "context": "algos.devices",
    "d3rlpy": "algos.d3rlpy",
    "d3rlpy.algos": "algos.d3rlpy.algos",
    "d3rlpy.algos.qlearning": "algos.d3rlpy.algos",
    "d3rlpy.algos.qlearning.base": "algos.d3rlpy.algos",
    "d3rlpy.algos.qlearning.explorers": "algos.d3rlpy.explorers",
    "d3rlpy.constants": "algos.d3rlpy.constants",
    "d3rlpy.context": "algos.devices",
    "d3rlpy.dataset": "algos.d3rlpy.dataset",
    "d3rlpy.dataset.buffers": "algos.d3rlpy.dataset",
    "d3rlpy.dataset.compat": "algos.d3rlpy.dataset",
    "d3rlpy.dataset.replay_buffer": "algos.d3rlpy.dataset",
    "d3rlpy.dataset.transition_pickers": "algos.d3rlpy.dataset",
    "d3rlpy.datasets": "algos.environments.datasets",
    "d3rlpy.dynamics": "algos.d3rlpy.dynamics",
    "d3rlpy.dynamics.mopo": "algos.d3rlpy.dynamics",
    "d3rlpy.envs": "algos.d3rlpy.envs",
    "d3rlpy.gpu": "algos.devices",
    "d3rlpy.logging": "algos.d3rlpy.logging",
    "d3rlpy.metrics": "algos.d3rlpy.metrics",
    "d3rlpy.metrics.comparer": "algos.judging.comparers",
    "d3rlpy.metrics.evaluators": "algos.d3rlpy.metrics",
    "d3rlpy.metrics.scorer": "algos.judging.scorers",
    "d3rlpy.models": "algos.d3rlpy.models",
    "d3rlpy.models.encoders": "algos.d3rlpy.models",
    "d3rlpy.models.q_functions": "algos.d3rlpy.models",
    "d3rlpy.online": "algos.d3rlpy.online",
    "d3rlpy.online.buffers": "algos.d3rlpy.online",
    "d3rlpy.online.explorers": "algos.d3rlpy.explorers",
    "d3rlpy.online.iterators": "algos.d3rlpy.online",
    "d3rlpy.ope": "algos.d3rlpy.ope",
    "d3rlpy.optimizers": "algos.d3rlpy.optimizers",
    "d3rlpy.optimizers.lr_schedulers": "algos.d3rlpy.optimizers",
    "d3rlpy.optimizers.optimizers": "algos.d3rlpy.optimizers",
    "d3rlpy.preprocessing": "algos.d3rlpy.preprocessing",
    "d3rlpy.preprocessing.action_scalers": "algos.d3rlpy.preprocessing",
    "d3rlpy.preprocessing.observation_scalers": "algos.d3rlpy.preprocessing",
    "d3rlpy.preprocessing.reward_scalers": "algos.d3rlpy.preprocessing",
    "datasets": "algos.environments.datasets",
    "experiments": "platform.api",
    "gpu": "algos.devices",
    "metrics": "algos.judging.metrics",
    "pfrl": "algos.pfrl",
    "pfrl.experiments": "algos.pfrl.experiments",
    "metrics.comparer": "algos.judging.comparers",
    "metrics.scorer": "algos.judging.scorers",
    "ope": "algos.judging.ope",
    "platform.experiment.config": "platform.settings.config",
    "platform.experiment.objective": "platform.settings.objective",
    "platform.experiment.status_reader": "platform.results.status_reader",
}


class _Found(Loader):
    """Gives a module that has another name, and leaves it as it is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import machinery has put the old name's in its place


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        above, _, last = name.rpartition(".")
        home = MOVED.get(name) or (
            f"{MOVED[above]}.{last}" if above in MOVED else None
        )  # a module of a package that moved as a whole
        if package != PACKAGE or home is None or (name not in MOVED and find_spec(f"{PACKAGE}.{home}") is None):
            return None
        holds_others = any(other.startswith(f"{name}.") for other in MOVED)  # it then gets a path, an empty one
        return ModuleSpec(fullname, _Found(f"{PACKAGE}.{home}"), is_package=holds_others)


def keep_old_names() -> None:
    """From here on these names can be imported. Once is enough."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # before a package's path is looked at, which finds its modules under the other name
