"""An experiment that a command runs on a cluster, what can be seen of it from its folders, and what it has to come to."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from d3ray import Dataset
from d3ray.data.spec import Environment
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.outbox import Line, lines
from d3ray.platform.storage.trials import Trial
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

from .processes import Command

N_STEPS, EPOCH, SEEDS = 240, 40, (0, 1)
ALGORITHM = {"name": "DQN", "encoder": {"hidden_units": [16]}, "batch_size": 8, "target_update_interval": 50}
SWEEPS = ("objective", "configuration/")  # metrics of runs of a sweep that come from several of them, when it ends
TRAIN = {
    "name": "disturbed",
    "algorithm": ALGORITHM,
    "n_steps": N_STEPS,
    "n_steps_per_epoch": EPOCH,
    "seeds": list(SEEDS),
    "evaluation": {"episodes": 2},
    "plugins": ["d3ray_holds"],
}


def write_dataset(place: Path) -> Path:
    """Some hundred random steps of something like CartPole."""
    rng = np.random.default_rng(0)
    ends = np.zeros(600, bool)
    ends[19::20] = True
    arrays = rng.normal(size=(600, 4)).astype(np.float32), rng.integers(0, 2, 600), np.ones(600, np.float32), ends
    Dataset.from_arrays(*arrays, environment=Environment(id="CartPole-v1"), name="tiny").write(place)
    return place


class Runs:
    """An experiment in a storage of its own, and the commands that run it.

    Args:
        place: A folder for all of it.
        settings: The experiment's, without its storage.
        env: For commands; the tracking server is a database in `place` unless it says another.
        job: `train` or `sweep`.
    """

    def __init__(self, place: Path, settings: Mapping[str, Any], env: Mapping[str, str], job: str = "train") -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place, self.storage, self.database = place, place / "results", place / "mlflow.db"
        self.settings: dict[str, Any] = {**settings, "storage": str(self.storage)}
        self.name, self.job = str(settings["name"]), job
        self.env = {"MLFLOW_TRACKING_URI": f"sqlite:///{self.database}", **env}
        self.commands: list[Command] = []
        (place / "holds").mkdir(exist_ok=True)
        (place / f"{job}.yaml").write_text(json.dumps(self.settings))

    def start(self, *arguments: str, **env: str) -> Command:
        """The command, begun."""
        what = ["d3ray.jobs", self.job, "--config", str(self.place / f"{self.job}.yaml"), *arguments]
        self.commands.append(Command(what, self.place, {**self.env, **env}))
        return self.commands[-1]

    def end(self) -> None:
        """Kills what is left of its commands."""
        for command in self.commands:
            command.end()

    # ---- holding trials at a moment: see plugins/d3ray_holds.py

    def hold(self, moment: str, step: int, *seeds: int) -> list[Path]:
        """Lets the trials of these seeds stop at a moment, until `release`."""
        files = [self.place / "holds" / f"{moment}-{step}-seed-{seed}" for seed in seeds]
        for file in files:
            file.touch()
        return files

    @staticmethod
    def reached(held: list[Path]) -> bool:
        """Whether all of them stand there."""
        return all(Runs.worker(file) for file in held)

    @staticmethod
    def worker(held: Path) -> int:
        """The process that stands there; 0 while none does."""
        said = held.with_name(held.name + ".reached")
        return int(said.read_text() or 0) if said.exists() else 0

    def release(self, held: list[Path]) -> None:
        """Lets them go on."""
        for file in held:
            file.unlink()
            file.with_name(file.name + ".reached").unlink(missing_ok=True)

    # ---- what is there

    @property
    def experiment(self) -> Experiment:
        """Its folder."""
        return Experiment.look(str(self.storage), self.name)

    def trials(self) -> list[Trial]:
        """Its trials; none where it has not begun."""
        return self.experiment.trials() if (self.storage / self.name / "experiment.json").exists() else []

    def trial(self, seed: int) -> Trial:
        """The trial of a seed, where each has one of its own."""
        (found,) = [trial for trial in self.trials() if trial.seeds == (seed,)]
        return found

    def attempts(self) -> list[int]:
        """How often each trial was begun."""
        return [int(trial.folder.read("attempt") or 0) for trial in self.trials()]

    def committed(self) -> list[int]:
        """Each trial's newest checkpoint's step."""
        return [trial.committed for trial in self.trials()]

    def rows(self, query: str) -> list[Any]:
        """What MLflow's database answers; its own client would keep connections open."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as database:
            return database.execute(query).fetchall()

    def statuses(self) -> Counter[str]:
        """How many runs MLflow has of each status."""
        return Counter(status for (status,) in self.rows("SELECT status FROM runs WHERE lifecycle_stage = 'active'"))

    def run_ids(self) -> dict[str, str]:
        """Ids of MLflow's runs by our key; each key has one run."""
        found = self.rows(
            "SELECT t.value, r.run_uuid FROM runs r JOIN tags t ON t.run_uuid = r.run_uuid AND t.key = 'd3ray.key' "
            "WHERE r.lifecycle_stage = 'active'"
        )
        assert len({key for key, _ in found}) == len(found)
        return dict(found)

    def tracked(self, trial: Trial, seed: int) -> list[tuple[str, int, float]]:
        """What MLflow has of a seed: (metric, step, value), sorted."""
        run = self.run_ids()[trial.runs[seed]]
        return sorted(self.rows(f"SELECT key, step, value FROM metrics WHERE run_uuid = '{run}'"))


def assert_equal_runs(undisturbed: Runs, disturbed: Runs) -> None:
    """Every trial finished with the metrics, the state and the policy that it has undisturbed, and MLflow has each number once.

    Wall-clock metrics (`time/…`) have other values, but come as often.
    """
    expected, found = ({trial.identity: trial for trial in runs.trials()} for runs in (undisturbed, disturbed))
    assert found.keys() == expected.keys()
    assert_delivered_once(disturbed)
    for identity, trial in found.items():
        _assert_equal_trials(expected[identity], trial)
        for seed in trial.seeds:
            assert _policy(trial, seed) == _policy(expected[identity], seed), f"{identity}, seed {seed}"
    for table in ("registered_model_aliases", "model_versions"):
        assert _seeds_of(disturbed, table) == _seeds_of(undisturbed, table), table


def assert_delivered_once(runs: Runs) -> None:
    """Everything finished, and MLflow has each run, and each metric of each step, once and as the outboxes say."""
    trials = runs.trials()
    assert runs.experiment.state["status"] == "FINISHED"
    assert runs.statuses() == {"FINISHED": sum(len(trial.seeds) for trial in trials) + 1}
    assert set(runs.run_ids()) == {runs.experiment.key, *(key for trial in trials for key in trial.runs.values())}
    for trial in trials:
        for seed in trial.seeds:
            assert trial.status[seed]["status"] == "FINISHED"
            got = list(lines(trial.outbox(seed), -1, trial.committed))
            sent = sorted((name, line.step, value) for line in got for name, value in line.metrics.items())
            tracked = runs.tracked(trial, seed)
            assert len({(name, step) for name, step, _ in tracked}) == len(tracked)
            assert [one for one in tracked if not one[0].startswith(SWEEPS)] == sent, f"{trial.identity}, seed {seed}"


def assert_trained_as_alone(trial: Trial, place: Path) -> None:
    """A trial has the metrics and the state that it has in a process of its own, without Ray."""
    decided = trial.configuration
    alone = Trial.create(Folder(place), decided, trial.seeds, trial.dataset)
    told = {name: decided[name] for name in ("algorithm", "n_steps", "n_steps_per_epoch", "evaluation")}
    told |= {"dataset": trial.dataset["source"], "seeds": trial.seeds, "device": "cpu", "folder": alone.folder.name}
    run = TrialRun(TrialConfig.checked(told))
    while not run.done:
        run.epoch()
    run.close()
    _assert_equal_trials(alone, trial)


def _assert_equal_trials(alone: Trial, trial: Trial) -> None:
    assert trial.committed == alone.committed
    assert _state(trial) == _state(alone), trial.identity
    for seed in trial.seeds:
        wanted, got = (list(lines(one.outbox(seed), -1, one.committed)) for one in (alone, trial))
        assert [line.step for line in got] == [line.step for line in wanted]
        assert _values(got) == _values(wanted), f"{trial.identity}, seed {seed}"


def _local(trial: Trial) -> Path:
    assert trial.folder.local is not None
    return trial.folder.local


def _state(trial: Trial) -> bytes:
    return (_local(trial) / f"checkpoints/step-{trial.committed:09d}/tensors.safetensors").read_bytes()


def _values(found: list[Line]) -> list[tuple[int, dict[str, float]]]:
    return [(line.step, {k: v for k, v in line.metrics.items() if not k.startswith("time/")}) for line in found]


def _policy(trial: Trial, seed: int) -> dict[str, bytes]:
    folder = _local(trial) / "policy" / f"seed-{seed}"
    return {name: (folder / name).read_bytes() for name in ("policy.onnx", "policy.safetensors")}


def _seeds_of(runs: Runs, table: str) -> list[tuple[str, ...]]:
    """Which seed's policy each alias has, or each version."""
    what = "a.alias, t.value" if table == "registered_model_aliases" else "t.value"
    on = "t.name = a.name AND t.version = a.version AND t.key = 'd3ray.seed'"
    found = sorted(runs.rows(f"SELECT {what} FROM {table} a JOIN model_version_tags t ON {on}"))
    assert found
    return found
