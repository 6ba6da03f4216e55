"""Small datasets, a sweep over them, and its driver without training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from d3ray import Dataset
from d3ray.data.spec import Environment
from d3ray.platform.driver.budget import Spent
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.trials import Trial
from d3ray.platform.sweep.config import SweepConfig
from d3ray.platform.sweep.run import Search, check_sweep
from d3ray.platform.sweep.searchers import make_searcher

SEARCH = {"algorithm.learning_rate": {"loguniform": [1e-5, 1e-2]}, "algorithm.gamma": {"choice": [0.9, 0.99]}}


def write_data(folder: Path) -> Path:
    """Two small datasets of CartPole's spaces, and one with continuous actions."""
    rng = np.random.default_rng(0)
    ends = np.zeros(400, bool)
    ends[19::20] = True
    for name in ("tiny", "other"):
        arrays = rng.normal(size=(400, 4)).astype(np.float32), rng.integers(0, 2, 400), np.ones(400, np.float32), ends
        Dataset.from_arrays(*arrays, environment=Environment(id="CartPole-v1"), name=name).write(folder / name)
    actions = rng.uniform(-1, 1, (400, 1)).astype(np.float32)
    Dataset.from_arrays(arrays[0], actions, arrays[2], ends, name="continuous").write(folder / "continuous")
    return folder


def sweep(data: Path, storage: Path, **changes: Any) -> SweepConfig:
    base: dict[str, Any] = {
        "name": "first",
        "dataset": str(data / "tiny"),
        "algorithm": {"name": "DQN", "encoder": {"name": "vector", "hidden_units": [8]}, "batch_size": 8},
        "n_steps": 40,
        "n_steps_per_epoch": 20,
        "seeds": (0, 1),
        "evaluation": {"holdout": 0.2, "episodes": 1},
        "objective": "holdout/td_error",
        "search": SEARCH,
        "budget": {"configurations": 6},
        "storage": str(storage),
    }
    return SweepConfig.checked({**base, **changes})


class Driver:
    """Does what the driver does with a proposer, without training: a trial ends with a value that follows from its settings."""

    def __init__(self, config: SweepConfig, spent: Callable[[Experiment], Spent] | None = None) -> None:
        datasets = check_sweep(config)
        searcher = make_searcher(config.searcher, config.space, config, config.objective.direction)
        place = next(iter(datasets.values()))
        self.experiment = Experiment.begin(
            config.storage_place, config.experiment, config.decided(searcher.end), place, resume=True
        )
        for trial in self.experiment.trials():
            if not trial.is_settled:
                trial.reopen()
        self.spent = Spent(self.experiment.folder, config.budget) if spent is None else spent(self.experiment)
        self.search = Search(config, self.experiment, datasets, searcher, self.spent)

    def take(self) -> Trial | None:
        trial = self.search.next()
        if trial is not None:
            self.spent.began(trial.identity)
            trial.reopen()
        return trial

    def end(self, trial: Trial, status: str = "FINISHED", **more: Any) -> None:
        rate = trial.configuration["algorithm"]["learning_rate"]
        metrics = {"holdout/td_error": abs(np.log10(rate) + 3) + trial.configuration["algorithm"]["gamma"]}
        about = {"status": status, "step": 40, "metrics": metrics, **more}
        trial.settle({seed: {**about, "metrics": {n: v + seed / 10 for n, v in metrics.items()}} for seed in trial.seeds})
        self.spent.ended(trial.identity)
        self.search.ended(trial)

    def run(self, most: int = 1000) -> int:
        """Trains so many trials, one at a time; how many it did."""
        for done in range(most):
            try:
                trial = self.take()
            except StopIteration:
                return done
            assert trial is not None
            self.end(trial)
        return most

    def stop(self) -> None:
        self.experiment.close()

    def chosen(self) -> dict[int, Any]:
        found = {trial.number: json.loads(trial.folder.read("choice.json") or b"") for trial in self.experiment.trials()}
        return dict(sorted(found.items()))
