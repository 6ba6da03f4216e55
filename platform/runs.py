"""Runs an experiment: trials under Tune, metrics to the tracking server, and what came of each seed.

Whatever happened before, a run goes the same way: what is unfinished becomes a trial, a trial goes on from its own newest
checkpoint, and what is in the outboxes is delivered. So there is one path, for a first start and for a `--resume` after anything.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.dataset import Dataset
from ..data.errors import ConfigError, StorageError, did_you_mean
from .evaluation import check_spaces, environment_to_play, measured
from .experiment_config import ExperimentConfig
from .node_maps import prepare_node_maps
from .session import node_count, ray_session
from .storage import Experiment, Status, Trial, check_name
from .surroundings import note_surroundings

_TUNE = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # metrics go to the outbox
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends the command
    "RAY_AIR_NEW_OUTPUT": "0",  # prints tables whatever it is told
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # nothing is read from Tune's snapshots
}
_RETRIES = 5  # of a trial whose worker died; what a trial raises itself is not tried again


@dataclass(frozen=True)
class SeedResult:
    """What came of a seed."""

    seed: int
    status: Status
    reason: str  # why it failed; empty otherwise
    step: int  # gradient steps done
    metrics: dict[str, float]  # the last of each
    best: dict[str, Any] | None  # metric, value, step
    folder: str  # of its trial
    policy: str | None  # its policy package
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
    model: str | None  # the registered model
    undelivered: str = ""  # what the tracking server has not got, and why

    @property
    def look(self) -> str:
        """The command that shows the runs."""
        if self.tracking_uri.startswith("sqlite:"):
            return f"mlflow ui --backend-store-uri {shlex.quote(self.tracking_uri)}"
        return self.tracking_uri


@dataclass
class Progress:
    """How far the trials are; given to `on_progress` after every epoch of any of them."""

    n_steps: int
    steps: dict[int, int]  # by seed
    scores: dict[int, float]  # the latest return, by seed
    rates: dict[str, float]  # gradient steps a second, by trial

    @property
    def done(self) -> int:
        """Gradient steps of all seeds together."""
        return sum(self.steps.values())

    @property
    def total(self) -> int:
        """Gradient steps that there will be."""
        return self.n_steps * len(self.steps)

    def note(self) -> str:
        """Scores and speed in a few words."""
        words = [f"{sum(self.rates.values()):,.0f} steps/s"] if self.rates else []
        if self.scores:
            words.insert(0, "return " + ", ".join(f"{self.scores[seed]:.4g}" for seed in sorted(self.scores)))
        return "; ".join(words)


OnProgress = Callable[[Progress], None]


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
        KeyboardInterrupt: after Ctrl-C; what was committed is kept, and runs are marked KILLED.
    """
    from .delivery import Delivery, settle
    from .tracking import Tracking, check_tracking

    check_name(config.experiment)
    check_tracking(config.storage_place, 1 if os.environ.get("MLFLOW_TRACKING_URI") else node_count())
    dataset = Dataset.open(config.dataset_place)
    _check_data(config, dataset)
    about = describe_dataset(dataset, config.dataset_place)
    configuration = {**config.configuration(), "seeds": list(config.seeds), "seeds_per_trial": config.seeds_per_trial}
    tracking = Tracking.open(config.storage_place)
    experiment = Experiment.begin(config.storage_place, config.experiment, configuration, about, resume=resume, replace=replace)
    try:
        note_surroundings(experiment.folder)
        settle(config.storage_place, tracking)
        trials = [experiment.trial(config.configuration(), seeds) for seeds in config.groups()]
        unfinished = [trial for trial in trials if not trial.is_settled]
        for trial in unfinished:
            trial.reopen()
        with Delivery(tracking, experiment, trials) as delivery:
            if unfinished:
                prepare_environment()
                with ray_session():
                    prepare_node_maps(config.dataset_place, resources={"CPU": config.resources.cpu, "GPU": config.resources.gpu})
                    delivery.start(runs=True)
                    reasons = run_trials(config, experiment, unfinished, on_progress)
                settle_the_dead(unfinished, reasons)
            else:
                delivery.start(runs=False)
            if experiment.state["status"] != (ended := conclude(trials))[0]:
                experiment.set_state(*ended)
            undelivered = delivery.finish()
        return collect(experiment, undelivered)
    except (KeyboardInterrupt, SystemExit):
        raise KeyboardInterrupt(_interrupted(experiment)) from None
    except BaseException:
        if experiment.is_new and all(trial.committed < 0 for trial in experiment.trials()):
            experiment.discard()
        raise
    finally:
        experiment.close()


def prepare_environment() -> None:
    """What Ray and Tune read when they start: quiet, and token authentication always on where the Ray is ours.

    Ray's own ports listen on every interface whatever one says, so a token is what keeps others out.
    """
    os.environ.update({name: value for name, value in _TUNE.items() if name not in os.environ})
    if os.environ.get("RAY_ADDRESS", "") in ("", "local"):
        os.environ["RAY_AUTH_MODE"] = "token"
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.tune.execution.experiment_state").setLevel(logging.CRITICAL)  # its snapshots are not read


def run_trials(
    config: ExperimentConfig, experiment: Experiment, trials: Sequence[Trial], on_progress: OnProgress | None
) -> dict[str, str]:
    """Trials under Tune, until none goes on. Why they failed, by identity, for those that did."""
    from ray import tune

    from .trainable import trainable

    class Watch(tune.Callback):
        """Tells how far the trials are."""

        progress = Progress(config.n_steps, {seed: 0 for trial in experiment.trials() for seed in trial.seeds}, {}, {})

        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            for seed, metrics in result.get("seeds", {}).items():
                self.progress.steps[int(seed)] = max(result["step"], self.progress.steps.get(int(seed), 0))
                if "evaluation/return" in metrics:
                    self.progress.scores[int(seed)] = metrics["evaluation/return"]
                if rate := metrics.get("time/updates_per_second"):
                    self.progress.rates[trial.trial_id] = rate
            if result.get("done"):
                self.progress.rates.pop(trial.trial_id, None)
            if on_progress is not None:
                on_progress(self.progress)

    watch = Watch()
    for trial in experiment.trials():
        watch.progress.steps.update(dict.fromkeys(trial.seeds, config.n_steps if trial.is_settled else max(trial.committed, 0)))
    resources = {"cpu": config.resources.cpu, "gpu": config.resources.gpu}
    with _tune_folder(experiment) as folder:
        tuner = tune.Tuner(
            tune.with_resources(trainable(config.algorithm.name), resources),
            param_space={"trial": tune.grid_search([trial_config(config, trial) for trial in trials])},
            tune_config=tune.TuneConfig(reuse_actors=True, trial_dirname_creator=lambda trial: trial.trial_id),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=folder,
                callbacks=[watch],
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=_RETRIES),
            ),
        )
        results = tuner.fit()
    reasons: dict[str, str] = {}
    for result in results:
        identity = Path(result.config["trial"]["folder"]).name if result.config else ""
        if result.error is not None:
            last = str(result.error).strip().splitlines()[-1]
            reasons[identity] = f"its worker died {_RETRIES + 1} times, at last: {last}"
        elif result.metrics and result.metrics.get("failed"):
            reasons[identity] = result.metrics["failed"]
    return reasons


def trial_config(config: ExperimentConfig, trial: Trial) -> dict[str, Any]:
    """What the worker of a trial is told: JSON."""
    algorithm = {"name": config.algorithm.name, "preset": config.algorithm.preset, **config.algorithm.settings}
    return {
        "dataset": config.dataset_place,
        "algorithm": algorithm,
        "n_steps": config.n_steps,
        "n_steps_per_epoch": config.n_steps_per_epoch,
        "seeds": list(trial.seeds),
        "evaluation": config.evaluation.model_dump(mode="json") if config.evaluation else None,
        "plugins": list(config.plugins),
        "device": None if config.resources.gpu else "cpu",
        "threads": max(1, int(config.resources.cpu)),
        "checkpoint": config.checkpoint.model_dump(mode="json"),
        "folder": trial.folder.name,
    }


@contextlib.contextmanager
def _tune_folder(experiment: Experiment) -> Any:
    """Where Tune keeps its own notes. Nothing is read from them again."""
    if experiment.folder.local is None:
        with tempfile.TemporaryDirectory(prefix="d3ray-tune-", ignore_cleanup_errors=True) as scratch:
            yield scratch
    else:
        folder = experiment.folder / "tune"
        folder.remove()
        yield folder.name


def settle_the_dead(trials: Sequence[Trial], reasons: Mapping[str, str]) -> None:
    """Says of trials that ended without a word why: their workers died, or could not write it down."""
    for trial in trials:
        if not trial.status:
            reason = reasons.get(trial.identity, "it ended without saying why").rstrip(".")
            ended = {"status": "FAILED", "reason": reason, "step": max(trial.committed, 0)}
            try:
                trial.settle(dict.fromkeys(trial.seeds, ended))
            except StorageError:  # of the same cause, most likely: a disk that is full
                raise StorageError(f"The trial {trial.identity} failed: {reason}; once that is mended, --resume goes on.") from None


def conclude(trials: Sequence[Trial]) -> tuple[Status, str]:
    """The status of an experiment whose trials have ended, and why it failed."""
    ended = [(seed, about) for trial in trials for seed, about in trial.status.items()]
    failed = [(seed, about) for seed, about in ended if about["status"] != "FINISHED"]
    if not failed:
        return "FINISHED", ""
    seed, about = failed[0]
    return "FAILED", f"{len(failed)} of {len(ended)} seeds failed; seed {seed}: {about['reason']}"


def collect(experiment: Experiment, undelivered: str = "") -> ExperimentResult:
    """What an experiment has come to, as its folders say; also of one that is running or was stopped."""
    seeds: list[SeedResult] = []
    for trial in experiment.trials():
        ended, delivered, committed = trial.status, trial.delivered, max(trial.committed, 0)
        for seed in trial.seeds:
            about, note = ended.get(seed, {}), delivered.get(seed, {})
            status: Status = about.get("status", "RUNNING" if experiment.state["status"] == "RUNNING" else "KILLED")
            policy = trial.folder / "policy" / f"seed-{seed}"
            result = SeedResult(
                seed=seed,
                status=status,
                reason=about.get("reason", ""),
                step=about.get("step", committed),
                metrics=about.get("metrics", {}),
                best=about.get("best"),
                folder=trial.folder.name,
                policy=policy.name if status == "FINISHED" else None,
                run_id=note.get("run"),
                model_version=note.get("model"),
                warning=about.get("warning", ""),
            )
            seeds.append(result)
    tracked = experiment.folder.read_json("tracking.json") or {}
    return ExperimentResult(
        name=experiment.name,
        status=experiment.state["status"],
        seeds=sorted(seeds, key=lambda result: result.seed),
        folder=experiment.folder.name,
        tracking_uri=tracked.get("uri", ""),
        parent_run_id=tracked.get("run"),
        model=experiment.name if any(seed.model_version for seed in seeds) else None,
        undelivered=undelivered,
    )


def describe_dataset(dataset: Dataset, place: str) -> dict[str, Any]:
    """What the tracking server is told about the data, and what a resumed experiment is compared with. JSON."""
    return {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "source": place,
        "n_transitions": dataset.n_transitions,
        "n_episodes": dataset.n_episodes,
        "environment": dataset.environment.id if dataset.environment else None,
        "return_mean": dataset.statistics.return_.mean,
        "return_std": dataset.statistics.return_.std,
        "schema": {name: [dtype, *shape] for name, (dtype, shape) in dataset.kinds.items()},
    }


def _check_data(config: ExperimentConfig, dataset: Dataset) -> None:
    """Raises before any work what a trial would raise in its first second, or after its first evaluation."""
    from ..algos.environments.make import make
    from ..algos.fit import fitted_config

    algorithm, best = config.make_algorithm(config.seeds[0]), config.checkpoint.best
    fitted_config(algorithm, dataset)
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
