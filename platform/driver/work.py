"""What an experiment is made of: all that the driver has to know of `train`, a sweep or a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...data.uris import without_secrets
from ..settings.config import ExperimentConfig, Limits
from ..storage.experiments import Experiment
from ..storage.resuming import Longer
from ..storage.trials import Trial
from ..subjects.kind import streams
from ..worker.trial_config import trial_config
from .budget import Spent
from .proposer import Proposer

if TYPE_CHECKING:  # Ray takes seconds, and is not needed before trials run
    from ray.tune.schedulers import TrialScheduler


@dataclass(frozen=True)
class Work:
    """Definition of an experiment.

    Attributes:
        config: Name, storage, resources, and what else trials have in common.
        configuration: What decides the results, JSON; a resumed experiment must have the same.
        datasets: Description of each dataset (`describe_dataset`) by place.
        proposer: Makes the proposer of trials, given the experiment, what was spent, and the seeds of each trial.
        scheduler: Makes Tune's scheduler.
        also: Told to every trial's worker beside its `trial_config`.
        data: Description of the experiment's own data; None: the first of `datasets`.
        tags: Of the experiment's run in MLflow, beside those that every run has.
        limits: What it may spend before nothing new begins; None: not counted.
        max_concurrent: Most trials at a time; None: as many as fit.
        asked: The job and its settings as they were given (`settings.config.asked`), for another process to go on.
        undivided: Why seeds that train as one stack may not be split, a clause; empty: they may.
        longer: Says why training that was begun for fewer steps cannot go on to these; None: steps must be the same.
    """

    config: ExperimentConfig
    configuration: Mapping[str, Any]
    datasets: Mapping[str, Mapping[str, Any]]
    proposer: Callable[[Experiment, Spent, Sequence[Sequence[int]]], Proposer]
    scheduler: Callable[[Experiment], TrialScheduler | None] = lambda experiment: None
    also: Mapping[str, Any] = field(default_factory=dict[str, Any])
    data: Mapping[str, Any] | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits | None = None
    max_concurrent: int | None = None
    asked: Mapping[str, Any] = field(default_factory=dict[str, Any])
    undivided: str = ""
    longer: Longer | None = None

    def propose(self, experiment: Experiment, spent: Spent) -> Proposer:
        return self.proposer(experiment, spent, self.config.groups())

    def stacked(self, seeds_per_trial: int | None) -> Work:
        """Return a copy with stacks of so many seeds; None: itself. Its `configuration` stays what was asked for."""
        if seeds_per_trial is None:
            return self
        return replace(self, config=self.config.model_copy(update={"seeds_per_trial": seeds_per_trial}))

    def told(self, trial: Trial, *, in_full: bool = False) -> dict[str, Any]:
        """Return the config of a trial's worker, JSON; `in_full` with this command's credentials, which no file may hold."""
        told = {**trial_config(self.config, trial), **self.also}
        if not in_full:
            return told
        return {**told, "dataset": self.secret_places.get(told["dataset"], told["dataset"]), "folder": trial.folder.name}

    @property
    def secret_places(self) -> dict[str, str]:
        """The storage and places of datasets that hold credentials, by what is kept of them."""
        return {kept: place for place in (self.config.storage, *self.datasets) if (kept := without_secrets(place)) != place}

    @property
    def streams(self) -> bool:
        """True if trials stream their data, by the experiment's own settings; one that does not makes its map itself."""
        return streams(self.config.algorithm.settings)

    @property
    def about(self) -> Mapping[str, Any]:
        """Description of the data of the experiment as a whole."""
        return next(iter(self.datasets.values())) if self.data is None else self.data
