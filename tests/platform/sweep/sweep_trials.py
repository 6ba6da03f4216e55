"""Trials of a sweep over a tiny dataset: made, trained here or under Tune, and what they left."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.tune.schedulers import TrialScheduler

from d3ray import Dataset
from d3ray.algos.registry import make_algorithm
from d3ray.data.spec import Environment
from d3ray.platform.driver.proposer import Listed
from d3ray.platform.driver.work import Work
from d3ray.platform.experiment.checks import describe_dataset
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.settings.objective import Objective
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import Outbox, lines
from d3ray.platform.storage.trials import Trial
from d3ray.platform.worker.trial_config import TrialConfig

PLUGINS = Path(__file__).with_name("plugins")
SCORE = Objective(metric="train/score")
ALGORITHM = {"name": "ScoredDQN", "encoder": {"name": "vector", "hidden_units": [8]}, "batch_size": 4}


@contextmanager
def plugins() -> Generator[None]:
    """The folder of plugins, for this process; `lend` is for those of a Ray."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PLUGINS)
        importlib.import_module("scored_dqn")  # stays: an algorithm is registered once
        yield


def lend(folder: Path) -> None:
    """Puts the plugins where the workers of a Ray find them."""
    for plugin in PLUGINS.glob("*.py"):
        shutil.copy(plugin, folder)


def write_dataset(place: Path) -> Path:
    """Some hundred random steps."""
    rng = np.random.default_rng(0)
    ends = np.zeros(200, bool)
    ends[19::20] = True
    arrays = rng.normal(size=(200, 4)).astype(np.float32), rng.integers(0, 2, 200), np.ones(200, np.float32), ends
    Dataset.from_arrays(*arrays, environment=Environment(id="CartPole-v1"), name="tiny").write(place)
    return place


class Sweep:
    """An experiment whose configurations differ in settings of `ScoredDQN`, which `plugins` has to make known first."""

    def __init__(self, storage: Path, data: Path, *, seeds: tuple[int, ...] = (0,), **settings: Any) -> None:
        base = {"dataset": str(data), "algorithm": ALGORITHM, "n_steps": 80, "n_steps_per_epoch": 10, "plugins": ["scored_dqn"]}
        self.config = ExperimentConfig.checked(
            {"name": "sweep", **base, "seeds": seeds, "seeds_per_trial": len(seeds), "storage": str(storage), **settings}
        )
        about = describe_dataset(Dataset.open(data), str(data))
        self.experiment = Experiment.begin(str(storage), "sweep", {}, about, resume=True)

    def trial(self, number: int, **algorithm: Any) -> Trial:
        """The trial of a configuration."""
        decided = self.config.configuration()
        settings = make_algorithm({**ALGORITHM, **algorithm}).check_settings().model_dump(mode="json")
        decided["algorithm"] = {**decided["algorithm"], **settings}
        return self.experiment.trial(decided, self.config.seeds, number=number)

    def told(self, trial: Trial, **more: Any) -> dict[str, Any]:
        """What its worker is told."""
        return self.work(None, **more).told(trial)

    def work(self, scheduler: TrialScheduler | None, **more: Any) -> Work:
        """What the driver is given, with a scheduler and with more that workers are told."""
        also = {"objective": SCORE.model_dump(mode="json"), "heeds": True, **more}
        return Work(self.config, {}, {}, lambda *_: Listed([]), lambda experiment: scheduler, also)

    def worker(self, trial: Trial, **more: Any) -> TrialConfig:
        """The same, for a `TrialRun`."""
        return TrialConfig.checked(self.told(trial, **more))


class TuneTrial:
    """What a scheduler sees of a trial of Tune."""

    status, experiment_tag = "RUNNING", ""

    def __init__(self, trial: Trial) -> None:
        self.config = {"trial": {"folder": trial.folder.name}}

    def is_finished(self) -> bool:
        """It runs."""
        return False


def commit(trial: Trial, step: int, scores: Mapping[int, float], *, failed: Mapping[int, int] | None = None) -> None:
    """What a worker leaves of an epoch, without the training: metrics, and a checkpoint in name only."""
    for seed, score in scores.items():
        box = Outbox(trial.outbox(seed))
        bad = {"first_bad_step": 1.0} if (failed or {}).get(seed) == step else {}
        box.begin(max(trial.committed, 0))
        box.add(step, {"train/score": score, **bad})
        box.write(step)
    local = (trial.folder / "checkpoints" / f"step-{step:09d}").local
    assert local is not None
    local.mkdir(parents=True)


def curve(trial: Trial, name: str, seed: int = 0) -> dict[int, float]:
    """A metric by step, each step once."""
    found = [(line.step, line.metrics[name]) for line in lines(trial.outbox(seed), -1, trial.committed) if name in line.metrics]
    assert [step for step, _ in found] == sorted({step for step, _ in found})
    return dict(found)
