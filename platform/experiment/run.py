"""Runs an experiment: trials under Tune, metrics to the tracking server, and what came of each seed.

Whatever happened before, a run goes the same way: what is unfinished becomes a trial, a trial goes on from its own newest
checkpoint, and what is in the outboxes is delivered. So there is one path, for a first start and for a `--resume` after anything.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...data.dataset import Dataset
from ...data.errors import ConfigError, StorageError, did_you_mean
from ..cluster.session import node_count, ray_session
from ..planning.packing import Repacked, pack, resources
from ..storage.experiments import Experiment, Status, Trial, check_name
from ..tracking.surroundings import note_surroundings
from ..uris import without_password, without_secrets
from .config import ExperimentConfig
from .driver import OnProgress, Progress, prepare_environment, run_trials, trial_config
from .evaluation import check_spaces, environment_to_play, measured
from .node_maps import prepare_node_maps
from .places import Data, open_place
from .proposer import Listed, Proposer

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler

__all__ = ["ExperimentResult", "Progress", "SeedResult", "Work", "carry_out", "collect", "describe_dataset", "run_experiment"]


@dataclass(frozen=True)
class SeedResult:
    """What came of a seed."""

    seed: int
    number: int | None  # of its configuration in a sweep
    status: Status
    reason: str  # why it failed; empty otherwise
    final: bool  # whether it ended in a way that --resume leaves as it is
    step: int  # gradient steps done
    metrics: dict[str, float]  # the last of each
    best: dict[str, Any] | None  # metric, value, step
    folder: str  # of its trial
    policy: str | None  # its policy package; of seeds that a scheduler stopped, the best until then where that was kept
    run_id: str | None = None  # in MLflow
    model_version: str | None = None
    warning: str = ""  # what its metrics give cause to doubt, as diverging values

    @property
    def score(self) -> float | None:
        """The best metric, else the last return in an environment; None where neither was measured."""
        if self.best is not None:
            return float(self.best["value"])
        return self.metrics.get("evaluation/return")


@dataclass(frozen=True)
class ExperimentResult:
    """What came of an experiment, and where it lies."""

    name: str
    status: Status
    seeds: list[SeedResult]
    folder: str
    tracking_uri: str
    parent_run_id: str | None
    models: tuple[str, ...]  # the registered models: one, where configurations learned from several datasets one for each
    undelivered: str = ""  # what the tracking server has not got, and why

    @property
    def model(self) -> str | None:
        """The registered model, the first of them."""
        return next(iter(self.models), None)

    @property
    def look(self) -> str:
        """The command that shows the runs."""
        if self.tracking_uri.startswith("sqlite:"):
            return f"mlflow ui --backend-store-uri {shlex.quote(self.tracking_uri)}"
        return without_password(self.tracking_uri)


@dataclass(frozen=True)
class Work:
    """What an experiment is made of.

    Attributes:
        config: Name, storage, resources, and what else trials have in common.
        configuration: What decides the results, JSON; a resumed experiment must have the same.
        datasets: Description of each dataset (`describe_dataset`) by place.
        proposer: Makes who says which trials there are.
        scheduler: Makes Tune's scheduler.
        trial_config: What a trial's worker is told, JSON.
        data: The description of the experiment's own data; None: the first of `datasets`.
        tags: Of the experiment's run in MLflow, beside those that every run has.
        max_concurrent: Trials at a time, whatever there is room for; None: as many as fit.
    """

    config: ExperimentConfig
    configuration: Mapping[str, Any]
    datasets: Mapping[str, Mapping[str, Any]]
    proposer: Callable[[Experiment], Proposer]
    scheduler: Callable[[Experiment], TrialScheduler | None] = lambda experiment: None
    trial_config: Callable[[ExperimentConfig, Trial], dict[str, Any]] = trial_config
    data: Mapping[str, Any] | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    max_concurrent: int | None = None

    def __post_init__(self) -> None:
        tell, places = self.trial_config, self.secret_places

        def with_place(config: ExperimentConfig, trial: Trial) -> dict[str, Any]:
            told = tell(config, trial)
            return {**told, "dataset": places.get(without_secrets(told["dataset"]), told["dataset"])}

        if places:  # what is kept of them names no credentials, so a worker gets those of this command
            object.__setattr__(self, "trial_config", with_place)

    @property
    def secret_places(self) -> dict[str, str]:
        """Places of datasets that hold credentials, by what is kept of them."""
        return {kept: place for place in self.datasets if (kept := without_secrets(place)) != place}

    @property
    def about(self) -> Mapping[str, Any]:
        """What the experiment as a whole is said to learn from."""
        return next(iter(self.datasets.values())) if self.data is None else self.data


def run_experiment(
    config: ExperimentConfig, *, resume: bool = False, replace: bool = False, on_progress: OnProgress | None = None
) -> ExperimentResult:
    """Trains every seed that is not trained yet.

    Args:
        config: What to train.
        resume: Go on with an experiment of that name in that storage.
        replace: Delete it and begin anew.
        on_progress: Called in this process after epochs.

    Raises:
        ConfigError, DataError, StorageError: before any work, for what cannot be used, reached or seen.
        StorageError: meanwhile, where something cannot be written; what was committed is kept.
        KeyboardInterrupt: after Ctrl-C; what was committed is kept, and runs are marked KILLED.
    """
    return carry_out(train_work(config), resume=resume, replace=replace, on_progress=on_progress)


def train_work(config: ExperimentConfig) -> Work:
    """What training is made of. Raises as `run_experiment` before any work."""
    check_place(config)
    dataset = open_place(config.dataset_place)
    check_data(config, dataset)
    about = describe_dataset(dataset, config.dataset_place)
    decided = config.configuration()
    return Work(
        config=config,
        configuration={**decided, "seeds": list(config.seeds), "seeds_per_trial": config.seeds_per_trial},
        datasets={config.dataset_place: about},
        proposer=lambda experiment: Listed([experiment.trial(decided, seeds) for seeds in config.groups()]),
    )


def check_place(config: ExperimentConfig) -> None:
    """Raises ConfigError where results or runs could not be kept."""
    from ..tracking.runs import check_tracking

    check_name(config.experiment)
    check_tracking(config.storage_place, 1 if os.environ.get("MLFLOW_TRACKING_URI") else node_count())


def carry_out(work: Work, *, resume: bool, replace: bool, on_progress: OnProgress | None) -> ExperimentResult:
    """Runs what is unfinished of an experiment. Raises as `run_experiment`."""
    from ..tracking.delivery import Delivery
    from ..tracking.metric_files import MetricFiles
    from ..tracking.place import keep_place, recorded_place
    from ..tracking.runs import Tracking
    from ..tracking.settling import settle

    config = work.config
    tracking = Tracking.open(config.storage_place, recorded_place(config.storage_place, config.experiment) if resume else None)
    experiment = Experiment.begin(
        config.storage_place, config.experiment, work.configuration, work.about, resume=resume, replace=replace, tags=work.tags
    )
    try:
        keep_place(experiment, tracking.place)
        note_surroundings(experiment.folder)
        settle(config.storage_place, tracking)
        for trial in experiment.trials():
            trial.give_up_after(config.retries)
        proposer = work.proposer(experiment)
        with Delivery(tracking, experiment, experiment.trials(), MetricFiles(experiment, config.loggers)) as delivery:
            unfinished = proposer.has_more()
            if unfinished:
                for trial in experiment.trials():
                    if not trial.is_settled:
                        trial.reopen()
                prepare_environment()
                with ray_session():
                    packed = pack(work).config
                    recorded = {place: about["fingerprint"] for place, about in work.datasets.items()}
                    prepare_node_maps(*recorded, resources=packed.resources.wanted, recorded=recorded)
                    delivery.start(runs=True)

                    def told(trial: Trial) -> dict[str, Any]:
                        experiment.lock.check()
                        return resources(trial, work.trial_config(packed, trial))

                    repacked = Repacked(proposer, told)
                    run_trials(
                        experiment,
                        repacked,
                        told,
                        _checked(experiment, on_progress),
                        work.scheduler(experiment),
                        started=delivery.add,
                        places=work.secret_places,
                        grow_to=packed.resources.grow_to,
                        max_concurrent=work.max_concurrent,
                    )
            else:
                delivery.start(runs=False)
            experiment.lock.check()
            for trial in experiment.trials():
                trial.give_up_after(config.retries)
            if experiment.state["status"] != (ended := conclude(experiment.trials()))[0]:
                experiment.set_state(*ended)
            undelivered = delivery.finish()
        return collect(experiment, undelivered)
    except (KeyboardInterrupt, SystemExit):
        raise KeyboardInterrupt(_interrupted(experiment)) from None
    except BaseException as error:
        if experiment.is_new and not experiment.lock.lost and all(trial.committed < 0 for trial in experiment.trials()):
            experiment.discard()
        elif type(error) is StorageError and "--resume" not in str(error):  # such as a full disk under our own notes
            raise StorageError(f"{str(error).rstrip('.')}; once that is mended, --resume goes on.") from error
        raise
    finally:
        experiment.close()


def _checked(experiment: Experiment, on_progress: OnProgress | None) -> OnProgress:
    """`on_progress`, which ends the command where another has taken the experiment over."""

    def checked(progress: Progress) -> None:
        experiment.lock.check()
        if on_progress is not None:
            on_progress(progress)

    return checked


def conclude(trials: Sequence[Trial]) -> tuple[Status, str]:
    """The status of an experiment whose trials have ended, and why it failed.

    In a sweep a configuration that diverged, or that a scheduler stopped, is an outcome like any; the sweep fails where others
    failed, or where nothing finished. What is left where a budget ended it, or data are missing now, a resume goes on with.
    """
    if left := sum(not trial.status for trial in trials):
        return "KILLED", f"{left} of {len(trials)} trials are left"
    ended = [(trial, seed, about) for trial in trials for seed, about in trial.status.items()]
    failed = [(trial, seed, about) for trial, seed, about in ended if about["status"] != "FINISHED"]
    if any(about["status"] == "FINISHED" for _, _, about in ended):
        failed = [one for one in failed if one[0].number is None or not one[2].get("final")]
    if not failed:
        return "FINISHED", ""
    trial, seed, about = failed[0]
    which = f"seed {seed}" if trial.number is None else f"configuration {trial.number}, seed {seed}"
    return "FAILED", f"{len(failed)} of {len(ended)} seeds failed; {which}: {about['reason']}"


def collect(experiment: Experiment, undelivered: str = "") -> ExperimentResult:
    """What an experiment has come to, as its folders say; also of one that is running or was stopped."""
    seeds: list[SeedResult] = []
    models: dict[str, None] = {}
    overall: Status = experiment.state["status"]
    for trial in experiment.trials():
        ended, delivered, committed = trial.status, trial.delivered, max(trial.committed, 0)
        for seed in trial.seeds:
            about, note = ended.get(seed, {}), delivered.get(seed, {})
            status: Status = about.get("status", "RUNNING" if overall == "RUNNING" else "KILLED")
            policy = trial.folder / "policy" / f"seed-{seed}"
            final = status == "FINISHED" or bool(about.get("final"))
            result = SeedResult(
                seed=seed,
                number=trial.number,
                status=status,
                reason=about.get("reason", ""),
                final=final,
                step=about.get("step", committed),
                metrics=about.get("metrics", {}),
                best=about.get("best"),
                folder=trial.folder.name,
                policy=policy.name if final and policy.names() else None,
                run_id=note.get("run"),
                model_version=note.get("model"),
                warning=about.get("warning", ""),
            )
            seeds.append(result)
            if "registered" in note:
                models[note["registered"]] = None
    tracked = experiment.folder.read_json("tracking.json") or {}
    return ExperimentResult(
        name=experiment.name,
        status=overall,
        seeds=sorted(seeds, key=lambda result: (result.number or 0, result.seed)),
        folder=experiment.folder.name,
        tracking_uri=tracked.get("uri", ""),
        parent_run_id=tracked.get("run"),
        models=tuple(models),
        undelivered=undelivered,
    )


def describe_dataset(dataset: Data, place: str) -> dict[str, Any]:
    """What the tracking server is told about the data, and what a resumed experiment is compared with. JSON."""
    returns = dataset.statistics.return_ if isinstance(dataset, Dataset) else None
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "source": without_secrets(place),
        "n_transitions": dataset.n_transitions,
        "n_episodes": dataset.n_episodes,
        "environment": dataset.environment.id if dataset.environment else None,
        "return_mean": returns and returns.mean,
        "return_std": returns and returns.std,
        "schema": {name: [dtype, *shape] for name, (dtype, shape) in dataset.kinds.items()},
    }


def check_data(config: ExperimentConfig, dataset: Data) -> None:
    """Raises before any work what a trial would raise in its first second, or after its first evaluation."""
    from ...algos.environments.make import make
    from .subjects import check_data as check_learning

    algorithm, best = config.make_algorithm(config.seeds[0]), config.checkpoint.best
    check_learning(algorithm, dataset, config.evaluation)
    environment = None if config.evaluation is None else environment_to_play(config.evaluation, dataset)
    if environment is not None:
        with make(environment) as vector:
            check_spaces(dataset, vector.spec, environment if isinstance(environment, str) else environment.id)
    known = measured(config.evaluation, environment, dataset, algorithm)
    if best is not None and best not in known and not (best.startswith("train/") or best.endswith("_loss")):  # the algorithm's own
        raise ConfigError(f"checkpoint.best: there is no metric {best!r}{did_you_mean(best, [*known, 'train/td_error'])}")
    dataset.prepare()


def _interrupted(experiment: Experiment) -> str:
    """What to tell a user who pressed Ctrl-C."""
    trials = experiment.trials()
    finished = sum(about["status"] == "FINISHED" for trial in trials for about in trial.status.values())
    reached = max((trial.committed for trial in trials), default=-1)
    kept = f"checkpoints up to step {reached} are kept" if reached >= 0 else "no checkpoint was reached yet"
    return (
        f"Interrupted; {finished} of {sum(len(trial.seeds) for trial in trials)} seeds are done, {kept}. To go on, say the same "
        "with --resume."
    )
