"""Trials that learn while they act: the same as `fit_online`, from any step, one seed or several; and with a real Ray and kills."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from d3ray import DQN, PPO, SAC, Dataset, ProbabilisticEnsemble
from d3ray.algos.environments.evaluate import evaluate
from d3ray.algos.export.package import read_package
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Environment
from d3ray.platform.experiment.checks import check_data
from d3ray.platform.experiment.run import run_experiment
from d3ray.platform.places import environment_place, open_place
from d3ray.platform.results.progress import Progress
from d3ray.platform.settings.config import EvaluationConfig, ExperimentConfig
from d3ray.platform.settings.evaluation import evaluation_seed
from d3ray.platform.settings.online import OnlineConfig
from d3ray.platform.storage.experiments import Experiment
from d3ray.platform.storage.outbox import lines
from d3ray.platform.worker.subjects import make_subject
from d3ray.platform.worker.trial_config import TrialConfig
from d3ray.platform.worker.trial_run import TrialRun

from ...faults.processes import Command, clean_environment, kill, processes

SMALL = {"hidden_units": [8]}
CARTPOLE = environment_place("CartPole-v1")
PPO_: dict[str, Any] = {"update_interval": 40, "batch_size": 10, "n_passes": 2, "learning_rate": 0.3}
PPO_ |= {"policy_encoder": SMALL, "value_encoder": SMALL}  # a rate at which what it does changes with every step
DQN_: dict[str, Any] = {"batch_size": 8, "learning_rate": 0.3, "encoder": SMALL}
SAC_: dict[str, Any] = {"batch_size": 8, "action_scaler": "min_max", "actor_encoder": SMALL, "critic_encoder": SMALL}
EXPLORER = {"name": "epsilon_greedy", "start": 1.0, "end": 0.1, "duration": 30}


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng, ends = np.random.default_rng(0), np.zeros(60, bool)
    ends[19::20] = True
    observation, action = rng.normal(size=(60, 3)).astype(np.float32), rng.uniform(-2, 2, (60, 1)).astype(np.float32)
    made = Dataset.from_arrays(
        observation, action, -np.ones(60, np.float32), np.zeros(60, bool), ends, environment=Environment(id="Pendulum-v1")
    )
    made.write(place := tmp_path_factory.mktemp("data") / "pendulum")
    return str(place)


def trial(algorithm: dict[str, Any], place: str = CARTPOLE, **more: Any) -> TrialRun:
    about = {"dataset": place, "algorithm": algorithm, "n_steps": 24, "n_steps_per_epoch": 6, "device": "cpu", **more}
    return TrialRun(TrialConfig.checked(about))


def trained(run: TrialRun) -> TrialRun:
    while not run.done:
        run.epoch()
    run.close()
    return run


def weights(algorithm: Any) -> dict[str, Tensor]:
    return algorithm.state()[0]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def test_on_policy_it_is_fit_online() -> None:
    run = trained(trial({"name": "PPO", **PPO_}, online=2))
    alone = PPO(**PPO_, seed=0, device="cpu").fit_online("CartPole-v1", n_envs=2, n_steps=24, n_steps_per_epoch=6)
    same(weights(run.one(0)), weights(alone))
    assert run.last[0]["train/environment_steps"] == 120  # three rollouts of 40, eight gradient steps each


def test_off_policy_it_is_fit_online() -> None:
    online = {"n_envs": 2, "capacity": 50, "explorer": EXPLORER, "update_interval": 2, "n_updates": 3, "random_steps": 4}
    run = trained(trial({"name": "DQN", **DQN_}, online=online))
    alone = DQN(**DQN_, seed=0, device="cpu").fit_online("CartPole-v1", n_steps=24, n_steps_per_epoch=6, **online)
    same(weights(run.one(0)), weights(alone))


def test_a_dataset_is_drawn_from_beside_what_it_does(pendulum: str) -> None:
    run = trained(trial({"name": "SAC", **SAC_}, pendulum, online={"mixture": 0.25}))
    dataset = Dataset.open(pendulum)
    alone = SAC(**SAC_, seed=0, device="cpu").fit_online(
        "Pendulum-v1", dataset=dataset, mixture=0.25, n_steps=24, n_steps_per_epoch=6
    )
    same(weights(run.one(0)), weights(alone))


def test_pretrained_it_is_fit_and_then_fit_online(pendulum: str) -> None:
    run = trained(trial({"name": "SAC", **SAC_}, pendulum, online={"mixture": 0.25, "pretrain": 12}))
    dataset = Dataset.open(pendulum)
    alone = SAC(**SAC_, seed=0, device="cpu").fit(dataset, 12, 6)
    alone.fit_online("Pendulum-v1", dataset=dataset, mixture=0.25, n_steps=12, n_steps_per_epoch=6)
    same(weights(run.one(0)), weights(alone))
    assert run.last[0]["train/environment_steps"] == 20  # a batch of eight, then one for each of the twelve gradient steps


@pytest.mark.parametrize("seeds", [(0,), (3, 1)])
@pytest.mark.parametrize("done", [1, 2, 3])
def test_pretrained_it_goes_on_bit_for_bit(pendulum: str, seeds: tuple[int, ...], done: int) -> None:
    """From within its offline steps, from their end, and from within those that follow."""
    goes_on({"algorithm": {"name": "SAC", **SAC_}, "place": pendulum, "seeds": seeds, "online": {"pretrain": 12}}, done)


def goes_on(settings: dict[str, Any], done: int) -> None:
    """A trial that is begun anew after so many of its epochs comes to what an undisturbed one does."""
    whole = trained(trial(**settings))
    first = trial(**settings)
    for _ in range(done):
        first.epoch()
    kept = first.state()
    first.close()
    second = trial(**settings)
    second.load(*kept, own=True)
    assert second.step == 6 * done
    trained(second)
    for seed in settings.get("seeds", (0,)):
        same(weights(second.one(seed)), weights(whole.one(seed)))


def test_rollouts_in_a_model_that_was_given_begin_where_it_has_been(tmp_path: Path) -> None:
    data = Dataset.open("d3ray/pendulum-replay")
    model = ProbabilisticEnsemble(encoder={"name": "vector", **SMALL}, n_members=2, n_elites=2, seed=5, device="cpu")
    model.set_params(action_scaler="min_max").fit(data, n_steps=20, n_steps_per_epoch=20)
    model.save(tmp_path / "model")
    settings = {**SAC_, "rollouts": {"n_transitions": 4, "horizon": 2, "interval": 6, "real": 0.25}}
    dynamics = str(tmp_path / "model")
    online = {"random_steps": 8, "update_start_step": 10}
    place = environment_place("Pendulum-v1")
    run = trained(trial({"name": "SAC", **settings, "dynamics": dynamics}, place, online=online))
    alone = SAC(**settings, dynamics=model, seed=0, device="cpu").fit_online(
        "Pendulum-v1", n_steps=24, n_steps_per_epoch=6, **online
    )
    same(weights(run.one(0)), weights(alone))
    bare = trained(trial({"name": "SAC", **SAC_}, place, online=online))
    assert any(not torch.equal(tensor, weights(run.one(0))[name]) for name, tensor in weights(bare.one(0)).items())
    first = trial({"name": "SAC", **settings, "dynamics": dynamics}, place, online=online)
    first.epoch()
    kept = first.state()
    first.close()
    second = trial({"name": "SAC", **settings, "dynamics": dynamics}, place, online=online)
    second.load(*kept, own=True)
    same(weights(trained(second).one(0)), weights(alone))


@pytest.mark.parametrize("done", [1, 2])
@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": {"name": "PPO", **PPO_}, "online": 2},
        {"algorithm": {"name": "PPO", **PPO_}, "seeds": (3, 1)},
        {"algorithm": {"name": "DQN", **DQN_, "sampler": "prioritized"}, "online": {"explorer": EXPLORER}},
    ],
    ids=["ppo", "two-seeds", "dqn"],
)
def test_it_goes_on_bit_for_bit(settings: dict[str, Any], done: int) -> None:
    """Six gradient steps end in the middle of a rollout, whose order is gone through twice."""
    goes_on(settings, done)


def test_seeds_in_turn_are_what_each_is_alone() -> None:
    both = trained(trial({"name": "PPO", **PPO_}, seeds=(3, 1)))
    for seed in (3, 1):
        same(weights(both.one(seed)), weights(trained(trial({"name": "PPO", **PPO_}, seeds=(seed,))).one(seed)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"algorithm": "DQN", "evaluation": "CartPole-v1", "dataset": None}, "the dataset is missing.*say online=1"),
        ({"algorithm": "PPO"}, "there is no place for PPO to learn in: say evaluation=ENVIRONMENT"),
        ({"algorithm": "PPO", "evaluation": {"environment": "CartPole-v1", "holdout": 0.1}}, "there is none"),
        ({"algorithm": "rllib/PPO", "evaluation": "CartPole-v1", "online": 2}, "online is for d3ray's own algorithms"),
        ({"algorithm": "PPO", "evaluation": "CartPole-v1", "resources": {"gpu": "auto"}}, "resources.gpu is auto"),
        ({"algorithm": "PPO", "evaluation": "CartPole-v1", "online": 0}, "online.n_envs is 0"),
        ({"algorithm": "DQN", "evaluation": "CartPole-v1", "online": {"pretrain": 5}}, "pretrain is 5.*there is none"),
        ({"algorithm": "PPO", "dataset": "x", "online": {"pretrain": 10_000}}, "pretrain is 10000, and PPO learns from what"),
        ({"algorithm": "DQN", "dataset": "x", "online": {"pretrain": 5}}, "a multiple of n_steps_per_epoch, which is 10000"),
        ({"algorithm": "DQN", "dataset": "x", "online": {"pretrain": 500_000}}, "none would be left to learn online"),
        ({"algorithm": "PPO", "evaluation": "CartPole-v1", "online": {"explore": "x"}}, "did you mean 'explorer'"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ExperimentConfig.checked(given)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"algorithm": "SAC", "evaluation": "CartPole-v1", "online": 1}, DataError, "SAC"),
        ({"algorithm": "PPO", "evaluation": "CartPole-v1", "online": {"mixture": 0.1}}, ConfigError, "online.mixture has no place"),
        ({"algorithm": "PPO", "evaluation": "CartPole-v1", "online": {"n_updates": 2}}, ConfigError, "n_updates has no place"),
        ({"algorithm": "DQN", "evaluation": "CartPole-v1", "online": {"explorer": "bolzmann"}}, ConfigError, "'boltzmann'"),
        ({"algorithm": "DQN", "evaluation": "CartPole-v1", "online": {"capacity": 10}}, ConfigError, "larger capacity"),
        ({"algorithm": "DQN", "evaluation": "CartPole-v2", "online": 1}, ConfigError, "CartPole-v1"),
    ],
)
def test_what_cannot_learn_there_is_told_before_anything_runs(given: dict[str, Any], error: type[Exception], said: str) -> None:
    config = ExperimentConfig.checked(given)
    with pytest.raises(error, match=said):
        check_data(config, open_place(config.dataset_place))


def test_its_settings_decide_its_name_only_where_they_are_given() -> None:
    offline = ExperimentConfig.checked({"algorithm": "DQN", "dataset": "d3ray/cartpole-replay"})
    assert "online" not in offline.configuration()
    online = ExperimentConfig.checked({"algorithm": "DQN", "evaluation": "CartPole-v1", "online": 4})
    assert online.configuration()["online"]["n_envs"] == 4


def worker() -> int:
    """The process in which a trial of this test's Ray runs."""

    def parent(process: int) -> int:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])

    (found,) = processes(lambda entry: parent(parent(int(entry.name))) == os.getpid(), "ray::Training")
    return found


def settings_of(storage: Path) -> dict[str, Any]:
    return {
        "algorithm": {"name": "PPO", **PPO_},
        "n_steps": 3_000,
        "n_steps_per_epoch": 600,
        "evaluation": {"environment": "CartPole-v1", "episodes": 3},
        "online": 2,
        "storage": str(storage),
    }


def assert_as_if_never_killed(storage: Path, attempts: int) -> dict[str, float]:
    """One trial of one run in MLflow has each step once, and came to what it comes to undisturbed; its last metrics."""
    from mlflow import MlflowClient

    settings = settings_of(storage)
    (found,) = Experiment.look(str(storage), "PPO-CartPole-v1").trials()
    assert int(found.folder.read("attempt") or 0) == attempts
    written = list(lines(found.outbox(0), -1, 10**9))
    assert [line.step for line in written] == [600, 1_200, 1_800, 2_400, 3_000]
    client = MlflowClient(f"sqlite:///{storage}/mlflow.db")
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    (run,) = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "evaluation/return")
    assert [point.step for point in history] == [600, 1_200, 1_800, 2_400, 3_000]
    told = {name: settings[name] for name in settings if name != "storage"}
    undisturbed = trained(TrialRun(TrialConfig.checked({"dataset": CARTPOLE, "device": "cpu", **told})))
    last = written[-1].metrics
    for name in ("evaluation/return", "train/policy_loss", "train/environment_steps"):
        assert last[name] == undisturbed.last[0][name]
    return last


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("local_ray")
def test_a_killed_worker_goes_on_in_the_same_run_with_each_step_once(tmp_path: Path) -> None:
    kills: list[int] = []

    def kill_once(progress: Progress) -> None:
        if not kills and progress.done >= 1_200:
            kills.append(worker())
            kill(kills[0], by=signal.SIGKILL)

    result = run_experiment(ExperimentConfig.checked(settings_of(tmp_path / "results")), on_progress=kill_once)
    assert len(kills) == 1
    assert (result.state, result.name) == ("FINISHED", "PPO-CartPole-v1")
    last = assert_as_if_never_killed(tmp_path / "results", attempts=2)
    played = evaluate(read_package(str(result.seeds[0].policy)), "CartPole-v1", episodes=3, seed=evaluation_seed(0, 3_000))
    assert played.mean == pytest.approx(last["evaluation/return"])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_command_is_resumed_in_the_same_run_with_each_step_once(tmp_path: Path) -> None:
    storage = tmp_path / "results"
    (tmp_path / "train.json").write_text(json.dumps(settings_of(storage)))
    arguments = ["d3ray.jobs", "train", "--config", str(tmp_path / "train.json")]

    def committed() -> int:
        if not (storage / "PPO-CartPole-v1" / "experiment.json").exists():
            return 0
        return max((trial.committed for trial in Experiment.look(str(storage), "PPO-CartPole-v1").trials()), default=0)

    first = Command(arguments, tmp_path, clean_environment())
    try:
        first.until(lambda: committed() >= 600)
    finally:
        first.end()  # driver, workers and Ray at once
    assert committed() < 3_000
    second = Command([*arguments, "--resume"], tmp_path, clean_environment())
    try:
        assert second.wait(300) == 0, second.log.read_text()
    finally:
        second.end()
    assert_as_if_never_killed(storage, attempts=2)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_what_is_held_out_is_not_learned_from_while_acting(share: float) -> None:
    data = Dataset.open("d3ray/cartpole-replay")
    evaluation = EvaluationConfig(environment="CartPole-v1", holdout=share)
    subject: Any = make_subject({"name": "DQN"}, (0,), "cpu", data, evaluation, OnlineConfig(pretrain=5))
    (member,) = subject.members
    wanted = data.split(share, seed=0)[0] if share else data
    assert member._dataset.n_episodes == wanted.n_episodes
    assert member._arguments["dataset"].fingerprint == wanted.fingerprint
