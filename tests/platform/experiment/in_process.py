"""Experiments and sweeps that really train, in this process, without Ray and MLflow."""

from __future__ import annotations

from d3ray.platform.experiment.run import train_work
from d3ray.platform.planning.rehearsal import proposed
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.trials import Trial
from d3ray.platform.sweep.config import SweepConfig
from d3ray.platform.sweep.run import sweep_work
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun


def trained(config: ExperimentConfig, *, resume: bool = False, most: int = 1000) -> list[Trial]:
    """Runs an experiment as its driver and workers do, without Ray and MLflow: so many epochs of each trial that is not settled."""
    work = sweep_work(config) if isinstance(config, SweepConfig) else train_work(config)
    place = config.storage_place, config.experiment
    experiment = Experiment.begin(*place, work.configuration, work.about, resume=resume, longer=work.longer)
    found, _ = proposed(work, experiment, 100)
    for trial in found:
        run = TrialRun(TrialConfig.checked(work.told(trial, in_full=True)))
        for _ in range(most):
            if run.done:
                run.finish()
                break
            run.epoch()
        run.close()
    experiment.close()
    return experiment.trials()
