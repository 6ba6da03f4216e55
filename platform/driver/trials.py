"""Trials under Tune: one driver for `train`, `sweep` and `benchmark`. What is to run a proposer says; how far it is, `Progress`."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from ...data.storage.claims import scratch_names
from ...data.storage.files import storage_errors
from ..cluster.session import CREDENTIALS
from ..results.progress import OnProgress, Progress
from ..storage.experiments import Experiment
from ..storage.trials import Trial
from .budget import Spent
from .proposer import Proposer
from .work import Work

_TUNE = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # metrics go to the outbox
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends the command
    "RAY_AIR_NEW_OUTPUT": "0",  # prints tables whatever it is told
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # nothing is read from Tune's snapshots
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",  # else a searcher's start one after another; the queue says how many may wait
}


def prepare_environment() -> None:
    """Set what Ray and Tune read at start, and quieten them."""
    os.environ.update({name: value for name, value in _TUNE.items() if name not in os.environ})
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune.execution.experiment_state").setLevel(logging.CRITICAL)  # its snapshots are not read


def run_trials(
    experiment: Experiment,
    proposer: Proposer,
    work: Work,
    on_progress: OnProgress | None = None,
    spent: Spent | None = None,
    started: Callable[[Trial], None] | None = None,
) -> None:
    """Runs what the proposer gives, until it has nothing more. Every trial that was given is settled afterwards.

    `on_progress` is called after epochs, `started` with each trial before it is handed to Tune.

    Raises:
        StorageError: something could not be written, as on a full disk, where a trial could not even say why it failed.
    """
    from ray import tune
    from ray.tune.execution.class_cache import DEFAULT_ENV_VARS, ENV_VARS_TO_PROPAGATE
    from ray.tune.schedulers import TrialScheduler

    from ..trainable import Training
    from .deaths import Deaths
    from .fault_log import FaultLog
    from .guard import Guard
    from .trial_queue import TrialQueue, Watch

    DEFAULT_ENV_VARS.clear()  # with one of its own, for Lightning, no worker that waits would fit a trial, and a new one is started
    ENV_VARS_TO_PROPAGATE.difference_update(CREDENTIALS)  # Ray logs what Tune hands on; `ray_session` does it without a word
    progress = Progress({})
    for trial in experiment.trials():
        progress.add(trial)

    def hand_out(trial: Trial) -> dict[str, Any]:
        experiment.lock.check()
        trial.reopen()
        one = progress.add(trial)
        one.state, one.reason, one.step = None, "", max(trial.committed, 0)
        if started is not None:
            started(trial)
        return work.told(trial)

    scheduler = work.scheduler(experiment)
    secret = {"places": places, "trials": experiment.folder / "trials"} if (places := work.secret_places) else {}
    queue = TrialQueue(
        proposer,
        hand_out,
        take_turns=getattr(scheduler, "takes_turns", False),
        grow_to=work.config.resources.grow_to,
        max_concurrent=work.max_concurrent,
        spent=spent,
        cancelled=lambda: experiment.is_stopping,
    )
    deaths = Deaths()
    watch = Watch(queue, experiment, progress, on_progress, deaths, spent, work.config.time_limit.experiment)
    queue.refuse = watch.refuse
    with _tune_folder(experiment) as folder, FaultLog(experiment.folder), deaths, Guard(folder) as guard:
        guard.before(queue, suggest=None, on_trial_result=None, on_trial_complete=None)
        guard.before(watch, on_trial_start=None, on_trial_result=None, on_trial_recover=None, on_trial_complete=None)
        guard.before(watch, on_trial_error=None)
        if scheduler is not None:
            guard.before(scheduler, on_trial_add=None, on_trial_complete=None, on_trial_error=None)
            guard.before(scheduler, on_trial_result=TrialScheduler.CONTINUE)
        tune.Tuner(
            tune.with_resources(tune.with_parameters(Training, **secret) if secret else Training, _resources),
            tune_config=tune.TuneConfig(
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
                search_alg=queue,
                scheduler=scheduler,
                num_samples=-1,
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=folder,
                callbacks=[guard, watch],
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=work.config.retries),  # deaths; what a trial raises is its end
            ),
        ).fit()


def _resources(config: Mapping[str, Any]) -> Any:
    """Return what Tune reserves for a trial, by its own config, so that one handed out again may get other resources."""
    from ray.tune import PlacementGroupFactory

    wanted = config["trial"]["resources"]
    if (n := int(wanted["gpu"])) > 1:  # one process a GPU, on one node
        return PlacementGroupFactory([{"CPU": wanted["cpu"] / n, "GPU": 1}] * n, strategy="STRICT_PACK")
    actors = [{"CPU": wanted["actor_cpu"]}] * int(wanted["actors"]) if wanted.get("actor_cpu") else []
    return PlacementGroupFactory([{"CPU": wanted["cpu"], "GPU": wanted["gpu"]}, *actors])


@contextlib.contextmanager
def _tune_folder(experiment: Experiment) -> Any:
    """Where Tune keeps its own notes. Nothing is read from them again."""
    if experiment.folder.local is None:
        with tempfile.TemporaryDirectory(prefix=scratch_names("tune"), ignore_cleanup_errors=True) as scratch:
            yield scratch
    else:
        folder = experiment.folder / "tune"
        folder.remove()
        with storage_errors("written", folder.name):
            experiment.folder.local.joinpath("tune").mkdir(mode=0o700)  # Tune keeps pickles there
        yield folder.name
