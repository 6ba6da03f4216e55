"""RLlib's algorithms as trials: a real Ray, a real MLflow, real kills."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from d3ray import Dataset
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.export.package import read_package
from d3ray.algos.saving.checkpoint import write_checkpoint
from d3ray.data.spec import Environment
from d3ray.platform.experiment.run import run_experiment
from d3ray.platform.places import environment_place
from d3ray.platform.record.results import Results
from d3ray.platform.results.progress import Progress
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.settings.evaluation import evaluation_seed
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import lines
from d3ray.platform.subjects.kind import kind_of
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

from ...faults.processes import kill, processes

SMALL = {"fcnet_hiddens": [16]}
PPO = {
    "name": "rllib/PPO",
    "model": SMALL,
    "training": {"train_batch_size_per_learner": 100, "minibatch_size": 50, "num_epochs": 1},
}
pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


@pytest.fixture(scope="module")
def place(local_ray: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset, and a Ray."""
    folder = tmp_path_factory.mktemp("rllib")
    rng = np.random.default_rng(0)
    ends = np.zeros(600, bool)
    ends[19::20] = True
    observation = rng.normal(size=(600, 4)).astype(np.float32)
    arrays = observation, (observation[:, 2] > 0).astype(np.int64), np.ones(600, np.float32), ends
    Dataset.from_arrays(*arrays, environment=Environment(id="CartPole-v1"), name="tiny").write(folder / "tiny")
    return folder


def worker() -> int:
    """The process in which a trial of this test's Ray runs."""

    def parent(process: int) -> int:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

    (found,) = processes(lambda entry: parent(parent(int(entry.name))) == os.getpid(), "ray::Training")
    return found


@pytest.fixture(scope="module")
def killed(place: Path) -> Results:
    """PPO, whose worker is killed once its first epochs are reported."""
    kills: list[int] = []

    def kill_once(progress: Progress) -> None:
        if not kills and progress.done >= 400:
            kills.append(worker())
            kill(kills[0], by=signal.SIGKILL)

    config = ExperimentConfig.checked(
        {
            "algorithm": PPO,
            "n_steps": 1000,
            "n_steps_per_epoch": 200,
            "evaluation": {"environment": "CartPole-v1", "episodes": 3},
            "storage": str(place / "results"),
        }
    )
    result = run_experiment(config, on_progress=kill_once)
    assert len(kills) == 1
    return result


def test_killed_it_goes_on_with_each_step_once(killed: Results) -> None:
    assert (killed.state, killed.name) == ("FINISHED", "rllib-PPO-CartPole-v1")
    (trial,) = Experiment.look(str(Path(killed.folder).parent), killed.name).trials()
    assert int(trial.folder.read("attempt") or 0) == 2
    written = list(lines(trial.outbox(0), -1, 10**9))
    assert [line.step for line in written] == [200, 400, 600, 800, 1000]
    assert [line.metrics["train/environment_steps"] for line in written] == [200, 400, 600, 800, 1000]
    assert all({"train/total_loss", "train/policy_loss", "evaluation/return"} <= line.metrics.keys() for line in written)
    names = [file.name for file in Path(trial.folder.name).rglob("*") if file.is_file()]
    assert not [name for name in names if name.endswith((".pkl", ".pickle"))]


def test_its_runs_are_like_any(killed: Results) -> None:
    from mlflow import MlflowClient

    (seed,) = killed.seeds
    client = MlflowClient(killed.tracking_uri)
    run = client.get_run(str(seed.run_id))
    history = client.get_metric_history(str(seed.run_id), "evaluation/return")
    assert [point.step for point in history] == [200, 400, 600, 800, 1000]
    assert run.info.status == "FINISHED"
    assert run.data.params["algorithm"] == "rllib/PPO"
    assert run.data.params["algorithm.train_batch_size_per_learner"] == "100"
    assert seed.model_version == "1"


def test_its_package_scores_what_was_measured(killed: Results) -> None:
    (seed,) = killed.seeds
    played = evaluate(read_package(str(seed.policy)), "CartPole-v1", episodes=3, seed=evaluation_seed(0, 1000))
    assert played.mean == pytest.approx(seed.metrics["evaluation/return"])


def test_its_report_says_what_it_learned_in(killed: Results) -> None:
    from d3ray.platform.report.experiment import report

    page = Path(report(str(Path(killed.folder).parent), [killed.name]).page).read_text()
    assert "rllib/PPO" in page
    assert "learned in CartPole-v1" in page
    assert "0 transitions" not in page


def trained(place: Path, algorithm: dict[str, Any], n_steps: int, start: tuple[dict[str, Tensor], dict[str, Any]] | None) -> Any:
    """What a trial of 40 steps has come to after `n_steps`, from the beginning or from a state."""
    about = {"dataset": str(place / "tiny"), "n_steps": 40, "n_steps_per_epoch": 10, "seeds": (0, 1), "device": "cpu"}
    run = TrialRun(TrialConfig.checked({**about, "algorithm": {"model": SMALL, "train_batch_size_per_learner": 32, **algorithm}}))
    if start is not None:
        run.load(*start, own=True)
    rows: list[dict[str, float]] = []
    while run.step < n_steps:
        rows = run.epoch()
    state = run.state()
    run.close()
    return state, rows


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param({"name": "rllib/BC"}, id="BC"),
        pytest.param({"name": "rllib/MARWIL", "beta": 0.5}, id="MARWIL", marks=pytest.mark.slow),
    ],
)
def test_an_offline_algorithm_goes_on_bit_for_bit(place: Path, algorithm: dict[str, Any]) -> None:
    through, rows = trained(place, algorithm, 40, None)
    half, _ = trained(place, algorithm, 20, None)
    resumed, again = trained(place, algorithm, 40, half)
    weights = [name for name in through[0] if "rl_module" in name or "optimizer" in name]
    assert len(weights) > 8
    for name in weights:
        torch.testing.assert_close(resumed[0][name], through[0][name], rtol=0, atol=0)
    first = next(name for name in weights if name.endswith(".weight"))
    assert not torch.equal(half[0][first], through[0][first])
    for row, other in zip(rows, again, strict=True):
        assert row["train/total_loss"] == other["train/total_loss"]
    assert rows[0]["train/total_loss"] != rows[1]["train/total_loss"]  # of two seeds


@pytest.mark.usefixtures("place")
def test_packaging_the_best_checkpoint_leaves_what_was_reached_as_it_is(place: Path, tmp_path: Path) -> None:
    """The last checkpoint of a trial is of its last step, whichever the policy was taken from."""
    config = TrialConfig.checked(
        {
            **{"dataset": str(place / "tiny"), "n_steps": 20, "n_steps_per_epoch": 10, "seeds": (0,), "device": "cpu"},
            "algorithm": {"name": "rllib/BC", "model": SMALL, "train_batch_size_per_learner": 32},
        }
    )
    run = TrialRun(config)
    run.epoch()
    tensors, meta = run.one(0).state()
    write_checkpoint(tmp_path / "best", tensors, meta)
    run.epoch()
    reached, _ = run.one(0).state()
    best = kind_of(run.one(0).name).load(run.one(0), tmp_path / "best", "cpu")
    assert best.policy() is not None  # builds it, as a package does
    ours, theirs = run.one(0).state()[0], best.state()[0]
    (first, *_) = [name for name in reached if "rl_module" in name and name.endswith(".weight")]
    assert torch.equal(theirs[first], tensors[first])
    assert torch.equal(ours[first], reached[first])
    assert not torch.equal(ours[first], theirs[first])
    best.close()
    run.close()


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_ppo_learns_to_balance() -> None:
    """A policy that learned nothing holds the pole for 10 to 60 steps."""
    algorithm = {
        "name": "rllib/PPO",
        "lr": 1e-3,
        "train_batch_size_per_learner": 2000,
        "minibatch_size": 125,
        "num_epochs": 8,
        "vf_loss_coeff": 0.01,
        "num_envs_per_env_runner": 8,
        "model": {"fcnet_hiddens": [64, 64]},
    }
    about = {"dataset": environment_place("CartPole-v1"), "n_steps": 60_000, "n_steps_per_epoch": 10_000, "device": "cpu"}
    run = TrialRun(TrialConfig.checked({**about, "algorithm": algorithm, "evaluation": {"environment": "CartPole-v1"}}))
    returns: list[float] = []
    while not run.done and max(returns, default=0.0) < 195:
        returns.append(run.epoch()[0]["evaluation/return"])
    run.close()
    assert max(returns) >= 195
