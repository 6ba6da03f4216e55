"""Runs a sweep: configurations that a searcher proposes, each trained over its seeds, on the one driver that `train` uses too.

Each trial's folder says what was chosen for it (`choice.json`, the configuration as the searcher proposed it), and how it ended. So
`--resume` needs no other memory: what is unfinished goes first, then the searcher is asked for the next number.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ...data.errors import ConfigError
from ...data.uris import without_secrets
from ..driver.budget import Spent
from ..driver.work import Work
from ..experiment.checks import check_data, check_place, describe_dataset
from ..experiment.models import with_kept_model
from ..experiment.run import carry_out
from ..places import open_place
from ..record.results import Results
from ..results.configurations import how_ended, objective_value
from ..results.progress import OnProgress
from ..settings.config import ExperimentConfig, asked
from ..storage.experiments import Experiment
from ..storage.trials import Trial
from .config import SweepConfig
from .scheduler_config import COMPARES
from .schedulers import make_scheduler, told
from .search_space import ALGORITHM, DATASET, Configuration, applied
from .searchers import Past, Searcher, make_searcher

_TRIES = 100  # numbers in a row without a new configuration, after which there is none
_CHECKED = 100  # configurations that are built before anything runs, where they are known


class Search:
    """The proposer of a sweep; `datasets` are described by place, `groups` are the seeds of each trial of a configuration."""

    def __init__(
        self,
        config: SweepConfig,
        experiment: Experiment,
        datasets: Mapping[str, Mapping[str, Any]],
        searcher: Searcher,
        spent: Spent,
        groups: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self._config, self._experiment, self._datasets, self._searcher = config, experiment, datasets, searcher
        self._spent, self._groups = spent, config.groups() if groups is None else groups
        self._most = config.max_configurations(searcher.end)
        self._status: dict[str, dict[int, dict[str, Any]]] = {}  # how trials ended, by identity; only what is not to be tried again
        self._members: dict[int, list[Trial]] = {}  # trials by number
        self._past: dict[int, Past] = {}  # what the searcher is told, in order of number
        self._known: set[str] = set()
        self._left: deque[Trial] = deque()
        places = {without_secrets(place): place for place in config.space.datasets or ()}  # with this command's credentials
        found = {trial.number: trial.choice or {} for trial in experiment.trials() if trial.number is not None}
        for choice in found.values():
            if DATASET in choice:
                choice[DATASET] = places.get(choice[DATASET], choice[DATASET])
        for number in sorted(found):
            self._add(number, found[number], applied(config, found[number]))

    def _add(self, number: int, choice: Configuration, config: ExperimentConfig) -> None:
        """A configuration with its trials, created where they are not there."""
        decided, about = config.configuration(), self._datasets[config.dataset_place]
        trials = list[Trial]()
        for seeds in self._groups:
            trial = self._experiment.trial(decided, seeds, dataset=about, number=number, choice=choice)
            trials.append(trial)
            if trial.dataset["fingerprint"] != about["fingerprint"]:
                raise ConfigError(
                    f"The sweep was begun with other data: {about['name']!r} had another fingerprint than it has now."
                )
        self._members[number], self._past[number] = trials, Past(number, choice)
        self._known.add(_key(config))
        for trial in trials:
            if trial.is_settled:
                self._status[trial.identity] = trial.status
            else:
                self._left.append(trial)
        self._look(number)

    # ---- what the driver asks

    def has_more(self) -> bool:
        return bool(self._left) or self._propose() is not None

    def next(self) -> Trial | None:
        """The next trial: first those that are not done. Raises StopIteration where there is none, ConfigError, StorageError."""
        if not self._left:
            if (proposal := self._propose()) is None:
                raise StopIteration
            self._add(*proposal)
        return self._left.popleft()

    def ended(self, trial: Trial) -> None:
        self._status[trial.identity] = trial.status
        if trial.number is not None:
            self._look(trial.number)

    # ---- what is new

    def _propose(self) -> tuple[int, Configuration, ExperimentConfig] | None:
        """The next new configuration with its number; None: there is none, or the budget is spent."""
        end = self._searcher.end
        if self._spent.is_over or (self._most is not None and len(self._members) >= self._most):
            return None
        history = self.history()
        first = max(self._members, default=-1) + 1
        for number in range(first, first + _TRIES if end is None else min(end, first + _TRIES)):
            if (choice := self._searcher.suggest(number, history)) is None:
                continue
            try:
                config = applied(self._config, choice)
            except ConfigError as error:  # values that are right one by one may not be together
                logging.getLogger("d3ray").warning("Configuration %d is left out. %s", number, error)
                continue
            if _key(config) not in self._known:
                return number, choice, config
        return None

    def history(self) -> list[Past]:
        return list(self._past.values())

    def _look(self, number: int) -> None:
        """Keeps what became of a configuration, once all its trials have ended."""
        if all(trial.identity in self._status for trial in self._members[number]):
            ended = {seed: about for trial in self._members[number] for seed, about in self._status[trial.identity].items()}
            value, step = objective_value(self._config.objective, ended), max(int(about.get("step", 0)) for about in ended.values())
            self._past[number] = Past(number, self._past[number].configuration, how_ended(ended), value, step)


def _key(config: ExperimentConfig) -> str:
    """Return a key that is equal for equal configurations, with presets and defaults written out."""
    return json.dumps([config.dataset_place, config.configuration()], sort_keys=True)


def run_sweep(
    config: SweepConfig,
    *,
    resume: bool = False,
    replace: bool = False,
    trial: str | None = None,
    on_progress: OnProgress | None = None,
) -> Results:
    """Searches until the budget is spent or there is nothing more to try.

    Arguments and errors are `run_experiment`'s; a sweep that goes on may have a larger budget.
    """
    if trial is not None and config.scheduler.name == "pbt":
        raise ConfigError("The trials of a population go on together: leave the trial out.")
    return carry_out(sweep_work(config), resume=resume, replace=replace, trial=trial, on_progress=on_progress)


def sweep_work(config: SweepConfig) -> Work:
    """Build the work of a sweep. Raises as `run_sweep` before any work."""
    check_place(config)
    config = with_kept_model(config)
    searcher = make_searcher(config.searcher, config.space, config, config.objective.direction)
    datasets = check_sweep(config)
    if config.searcher.is_blind:  # what is known to come is built before anything runs
        for number in range(min(config.max_configurations(searcher.end) or _CHECKED, _CHECKED)):
            if (choice := searcher.suggest(number, ())) is not None:
                applied(config, choice)
    space, coefficients = config.space, config.coefficients()
    perturbed = config.scheduler.perturbed(space.spaces, coefficients) if config.scheduler.name == "pbt" else ()
    spaces = {coefficients[name]: space.spaces[name] for name in perturbed}
    population = config.max_configurations(searcher.end) or 0

    return Work(
        config=config,
        configuration=config.decided(searcher.end),
        datasets=datasets,
        proposer=lambda experiment, spent, groups: Search(config, experiment, datasets, searcher, spent, groups),
        limits=config.budget,
        scheduler=lambda experiment: make_scheduler(config.scheduler, config, experiment, config.objective, spaces, population),
        also={"objective": config.objective.model_dump(mode="json"), **told(config.scheduler, list(spaces))},
        max_concurrent=config.searcher.max_concurrent,
        asked=asked("sweep", config, SweepConfig),
        longer=config.why_not_longer,
        undivided="" if config.scheduler.name == "none" else f"scheduler {config.scheduler.name} {COMPARES}",
    )


def check_sweep(config: SweepConfig) -> dict[str, dict[str, Any]]:
    """The description of each dataset of a sweep by place, the experiment's own first.

    Raises:
        ConfigError: an algorithm cannot be trained on one of them, or nothing measures the objective.
        DataError: one of them is not there.
    """
    space, found = config.space, dict[str, dict[str, Any]]()
    for name in space.datasets or (config.dataset,):
        place = config.model_copy(update={"dataset": name}).dataset_place
        dataset = open_place(place)
        found[place] = describe_dataset(dataset, place)
        for algorithm in space.algorithms:
            first = space.configuration(lambda _, one: one.at(0.0), {ALGORITHM: algorithm, DATASET: name})
            check_data(applied(config, first), dataset, config.objective.metric)
    return found
