"""Actors as actors of Ray: they are killed, and nothing is lost, learned twice or learned otherwise."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from d3ray import DQN, PPO, RayActors
from d3ray.algos.online.actors import LocalActors
from d3ray.algos.online.run import OnlineRun
from d3ray.data.errors import ConfigError
from d3ray.platform.experiment.run import run_experiment
from d3ray.platform.results.progress import Progress
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import lines
from d3ray.platform.worker.actors import ActorsDiedError

from ...faults.processes import kill, processes, until

pytestmark = pytest.mark.usefixtures("local_ray")
SMALL = {"hidden_units": [8]}
DQN_: dict[str, Any] = {"encoder": SMALL, "batch_size": 8, "learning_rate": 0.1}
PPO_: dict[str, Any] = {"policy_encoder": SMALL, "value_encoder": SMALL, "update_interval": 40, "batch_size": 10, "n_passes": 2}


def actors() -> list[int]:
    """Processes of this test's Ray in which actors act."""

    def parent(process: int) -> int:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

    return processes(lambda entry: parent(parent(int(entry.name))) == os.getpid(), "ray::_Remote")


def trained(make: Callable[[], Any], env: Any, given: Any, after: Callable[[int], None] = lambda _: None) -> Any:
    """Tensors and last metrics of a run, in whose epochs something happens."""
    with OnlineRun(make(), env, n_envs=4, capacity=400, actors=given) as run:
        last: dict[str, float] = {}
        for epoch, last in run.epochs(64, 16):  # noqa: B007
            after(epoch)
        return run.algorithm.state()[0], last


@pytest.mark.long
@pytest.mark.parametrize("make", [lambda: DQN(**DQN_, seed=3), lambda: PPO(**PPO_, seed=3)], ids=["dqn", "ppo"])
def test_killed_actors_are_replaced_and_what_is_learned_is_the_same(make: Callable[[], Any]) -> None:
    killed: list[int] = []

    def kill_one(epoch: int) -> None:
        if epoch < 3:
            killed.append(actors()[epoch % 2])
            kill(killed[-1], by=signal.SIGKILL)

    expected, _ = trained(make, "CartPole-v1", LocalActors(2, steps=8))
    found, metrics = trained(make, "CartPole-v1", RayActors(2, steps=8, num_cpus=0.25), kill_one)
    assert len(set(killed)) == 2
    assert metrics["rollout/replaced"] == 2
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    until(lambda: not actors())


class Ending(gymnasium.Env[Any, Any]):
    """One that ends its process, or raises."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, ends: bool) -> None:
        self.ends, self.steps = ends, 0

    def reset(self, **_: Any) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 20 and self.ends:
            os._exit(1)
        if self.steps == 20:
            raise ConfigError("Twenty steps are too many.")
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.mark.long
def test_an_actor_that_dies_again_and_again_ends_the_run_in_a_sentence() -> None:
    with pytest.raises(ActorsDiedError, match=r"Actor 0 died 3 times in a row over the same steps.*memory runs out"):
        trained(lambda: DQN(**DQN_, seed=3), lambda: Ending(True), RayActors(2, steps=8, num_cpus=0.25))
    until(lambda: not actors())


def test_what_an_environment_raises_arrives_as_it_was_raised() -> None:
    with pytest.raises(ConfigError, match=r"^Twenty steps are too many\.$"):
        trained(lambda: DQN(**DQN_, seed=3), lambda: Ending(False), RayActors(1, steps=8, num_cpus=0.25))


def test_what_its_making_raises_arrives_too() -> None:
    here = os.getpid()

    def made() -> Any:
        if os.getpid() != here:
            raise ConfigError("There is no licence on this machine.")
        return gymnasium.make("CartPole-v1")

    with pytest.raises(ConfigError, match=r"^There is no licence on this machine\.$"):
        trained(lambda: DQN(**DQN_, seed=3), made, RayActors(1, steps=8, num_cpus=0.25))


def settings(storage: Path, **online: Any) -> dict[str, Any]:
    return {
        "algorithm": {"name": "DQN", **DQN_},
        "n_steps": 3_000,
        "n_steps_per_epoch": 600,
        "evaluation": {"environment": "CartPole-v1", "episodes": 3},
        "online": {"n_envs": 2, "capacity": 2_000, "actors": 2, "actor_steps": 50, **online},
        "resources": {"cpu": 0.5, "actor_cpu": 0.25},
        "storage": str(storage),
    }


def test_more_actors_than_the_cluster_has_cpus_for_are_refused(tmp_path: Path) -> None:
    asked = {**settings(tmp_path / "results"), "resources": {"cpu": 1, "actor_cpu": 64}}
    result = run_experiment(ExperimentConfig.checked(asked))
    assert result.state == "FAILED"
    assert "fewer CPUs than a trial with its actors takes, 1 and 2 times 64" in str(result)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_trial_whose_actors_and_worker_are_killed_learns_each_step_once(tmp_path: Path) -> None:
    """It is one run in MLflow, and came to what an undisturbed one comes to."""
    from mlflow import MlflowClient

    killed: list[str] = []

    def kill_in_turn(progress: Progress) -> None:
        if len(killed) < 2 and progress.done >= 600 * (len(killed) + 1):
            kind = "ray::_Remote" if not killed else "ray::Training"
            killed.append(kind)
            kill(processes(lambda _: True, kind)[0], by=signal.SIGKILL)

    last: list[dict[str, float]] = []
    for name, look in (("killed", kill_in_turn), ("undisturbed", lambda _: None)):
        storage = tmp_path / name
        result = run_experiment(ExperimentConfig.checked(settings(storage)), on_progress=look)
        assert result.state == "FINISHED"
        (found,) = Experiment.look(str(storage), result.name).trials()
        written = list(lines(found.outbox(0), -1, 10**9))
        assert [line.step for line in written] == [600, 1_200, 1_800, 2_400, 3_000]
        last.append(written[-1].metrics)
        client = MlflowClient(f"sqlite:///{storage}/mlflow.db")
        runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
        (run,) = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
        history = client.get_metric_history(run.info.run_id, "evaluation/return")
        assert [point.step for point in history] == [600, 1_200, 1_800, 2_400, 3_000]
    assert killed == ["ray::_Remote", "ray::Training"]
    for name in ("evaluation/return", "train/critic_loss", "train/environment_steps"):
        assert last[0][name] == last[1][name]
