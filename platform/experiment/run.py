"""Runs an experiment: trials under Tune, metrics to the tracking server, and what came of each seed.

Whatever happened before, a run goes the same way: what is unfinished becomes a trial, a trial goes on from its own newest
checkpoint, and what is in the outboxes is delivered. So there is one path, for a first start and for a `--resume` after anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ...data.errors import ConfigError, StorageError, did_you_mean
from ..cluster.session import is_own_ray, ray_ahead, ray_session
from ..driver.budget import Spent
from ..driver.node_maps import check_own_machine, prepare_node_maps
from ..driver.proposer import Listed, Proposer
from ..driver.trials import prepare_environment, run_trials
from ..driver.work import Work
from ..places import open_place
from ..planning.packing import has_begun, pack
from ..record.results import Results
from ..results.configurations import conclude
from ..results.experiment import results_of
from ..results.progress import OnProgress, Progress
from ..settings.config import ExperimentConfig, asked
from ..storage.experiments import Experiment
from ..storage.folders import Folder
from ..storage.resuming import check_free
from ..storage.trials import Trial
from ..surroundings import note_surroundings
from ..tracking.delivery import Delivery
from ..tracking.metric_files import MetricFiles
from ..tracking.place import keep_place, recorded_place
from ..tracking.runs import Tracking, is_reached
from ..tracking.settling import settle
from ..tracking.views import keep_views
from ..words import resume_command
from ..worker.decisions import take_up
from .checks import check_data, check_place, describe_dataset
from .models import with_kept_model


def run_experiment(
    config: ExperimentConfig,
    *,
    resume: bool = False,
    replace: bool = False,
    trial: str | None = None,
    on_progress: OnProgress | None = None,
) -> Results:
    """Trains every seed that is not trained yet.

    Args:
        config: What to train.
        resume: Go on with an experiment of that name in that storage, also to more steps than it was begun for where that comes to
            what they would have come to from the start.
        replace: Delete it and begin anew.
        trial: Name of the only one to go on with, also where it was cancelled alone; None: all that are not settled.
        on_progress: Called in this process after epochs.

    Raises:
        ConfigError, DataError, StorageError: before any work, for what cannot be used, reached or seen.
        StorageError: meanwhile, where something cannot be written; what was committed is kept.
        KeyboardInterrupt: after Ctrl-C; what was committed is kept, and runs are marked KILLED.
    """
    return carry_out(train_work(config), resume=resume, replace=replace, trial=trial, on_progress=on_progress)


def train_work(config: ExperimentConfig) -> Work:
    """Build the work of training. Raises as `run_experiment` before any work."""
    check_place(config)
    config = with_kept_model(config)
    dataset = open_place(config.dataset_place)
    check_data(config, dataset)
    about = describe_dataset(dataset, config.dataset_place)
    decided = config.configuration()
    return Work(
        config=config,
        configuration={**decided, "seeds": list(config.seeds), "seeds_per_trial": config.seeds_per_trial},
        datasets={config.dataset_place: about},
        proposer=lambda experiment, _, groups: Listed([experiment.trial(decided, seeds) for seeds in groups]),
        asked=asked("train", config, ExperimentConfig),
        longer=config.why_not_longer,
    )


def carry_out(work: Work, *, resume: bool, replace: bool, on_progress: OnProgress | None, trial: str | None = None) -> Results:
    """Runs what is unfinished of an experiment. Arguments and errors as `run_experiment`'s."""
    place = work.config.storage_place, work.config.experiment
    check_free(*place, work.configuration, work.about, work.longer, resume=resume, replace=replace)
    if not resume:  # what is resumed may have nothing left to run
        wanted = work.config.wanted
        if work.config.resources.gpu == "auto":  # where there is no GPU, trials get none
            del wanted["GPU"]
        check_own_machine(wanted)
    prepare_environment()
    with ray_ahead() if _will_begin(work, resume=resume, replace=replace) else nullcontext():
        return _carry_out(work, resume=resume, replace=replace, on_progress=on_progress, trial=trial)


def _will_begin(work: Work, *, resume: bool, replace: bool) -> bool:
    """Return whether trials will run, as far as can be told at once: what is refused or all done needs no Ray."""
    storage, name = work.config.storage_place, work.config.experiment
    if resume or (not replace and (Folder(storage) / name).read("experiment.json") is not None):
        return False
    return is_reached(storage)


def _carry_out(work: Work, *, resume: bool, replace: bool, on_progress: OnProgress | None, trial: str | None) -> Results:
    config = work.config

    def waiting(what: str) -> None:
        if on_progress is not None:
            on_progress(Progress({}, what))

    waiting("opening MLflow")
    tracking = Tracking.open(config.storage_place, recorded_place(config.storage_place, config.experiment) if resume else None)
    flags: Any = {"resume": resume, "replace": replace, "longer": work.longer}
    experiment = Experiment.begin(config.storage_place, config.experiment, work.configuration, work.about, tags=work.tags, **flags)
    try:
        experiment.folder.remember()  # until workers begin, nobody else writes there
        if work.asked:
            experiment.keep_settings(work.asked)
        keep_place(experiment, tracking.place)
        keep_views(tracking, experiment)
        note_surroundings(experiment.folder)
        settle(config.storage_place, tracking)
        for one in experiment.trials():
            one.give_up_after(config.retries)
            one.allow(config.time_limit.model_dump())
        spent = Spent(experiment.folder, work.limits, time_limit=config.time_limit.experiment)
        work = work.stacked(experiment.seeds_per_trial)
        proposer = work.propose(experiment, spent) if trial is None else Listed([_taken_up(experiment, trial)])
        with Delivery(tracking, experiment, experiment.trials(), MetricFiles(experiment, config.loggers)) as delivery:
            if proposer.has_more():
                _train(work, experiment, proposer, spent, delivery, on_progress, trial, waiting)
                experiment.folder.remember()
            else:
                delivery.start(runs=False)
            experiment.lock.check()
            for one in experiment.trials():
                one.give_up_after(config.retries)
            if experiment.state["status"] != (ended := conclude(experiment.trials()))[0]:
                experiment.set_state(*ended)
            undelivered = delivery.finish()
        if experiment.is_cancelled:
            raise KeyboardInterrupt
        return results_of(experiment, undelivered)
    except (KeyboardInterrupt, SystemExit):
        raise KeyboardInterrupt(_interrupted(experiment)) from None
    except BaseException as error:
        if experiment.is_new and not experiment.lock.lost and not any(one.is_begun for one in experiment.trials()):
            experiment.discard()
        elif type(error) is StorageError and "--resume" not in str(error):  # such as a full disk under our own notes
            go_on = resume_command(experiment.folder.name)
            raise StorageError(f"{str(error).rstrip('.')}; once that is mended, {go_on} goes on.") from error
        raise
    finally:
        experiment.close()


def _taken_up(experiment: Experiment, name: str) -> Trial:
    """The trial of a name, which is to go on. Raises ConfigError: there is none, or nothing is left to do of it."""
    trials = {one.identity: one for one in experiment.trials()}
    if name not in trials:
        raise ConfigError(f"{experiment.name} has no trial {name!r}{did_you_mean(name, trials)}")
    take_up(trials[name])
    return trials[name]


def _train(
    work: Work,
    experiment: Experiment,
    proposer: Proposer,
    spent: Spent,
    delivery: Delivery,
    on_progress: OnProgress | None,
    only: str | None,
    waiting: Callable[[str], None],
) -> None:
    """Runs what a proposer gives, on a Ray, and delivers meanwhile."""
    for trial in experiment.trials():
        if not trial.is_settled and only in (None, trial.identity):
            trial.reopen()
    kept = only is not None or has_begun(work, experiment)
    experiment.folder.forget([trial.folder for trial in experiment.trials() if trial.is_settled])
    waiting("starting Ray" if is_own_ray() else "joining the Ray cluster")
    with ray_session():
        waiting("preparing data and workers")
        packed = pack(work, kept=kept)
        if (size := packed.config.seeds_per_trial) != work.config.seeds_per_trial:
            experiment.split(size)
            proposer = packed.propose(experiment, spent)
            delivery.look_anew()
        recorded = {place: about["fingerprint"] for place, about in work.datasets.items()}
        wanted, grows = packed.config.wanted, packed.config.resources.grow_to is not None
        prepare_node_maps(*recorded, resources=wanted, recorded=recorded, mapped=not work.streams, grows=grows)
        delivery.start(runs=True)
        run_trials(experiment, proposer, packed, on_progress, spent, started=delivery.add)


def _interrupted(experiment: Experiment) -> str:
    """Return the message to a user who pressed Ctrl-C."""
    trials = experiment.trials()
    finished = sum(about["status"] == "FINISHED" for trial in trials for about in trial.status.values())
    reached = max((trial.committed for trial in trials), default=-1)
    kept = f"checkpoints up to step {reached} are kept" if reached >= 0 else "no checkpoint was reached yet"
    how = "Cancelled" if experiment.is_cancelled else "Interrupted"
    return (
        f"{how}; {finished} of {sum(len(trial.seeds) for trial in trials)} seeds are done, {kept}. To go on: "
        f"{resume_command(experiment.folder.name)}"
    )
