"""Scripts as users of d3rlpy write them, of 2.8.1 and of its first versions, with the import lines changed only."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from sklearn.model_selection import GridSearchCV, cross_validate, train_test_split

from d3ray import d3rlpy
from d3ray.d3rlpy.algos import BC, CQL, DQN, SAC, DiscreteCQL
from d3ray.d3rlpy.dataset import MDPDataset
from d3ray.d3rlpy.gpu import Device
from d3ray.d3rlpy.metrics.scorer import (
    average_value_estimation_scorer,
    evaluate_on_environment,
    soft_opc_scorer,
    td_error_scorer,
)
from d3ray.d3rlpy.online.buffers import ReplayBuffer
from d3ray.d3rlpy.online.explorers import LinearDecayEpsilonGreedy
from d3ray.d3rlpy.preprocessing import MinMaxScaler, StandardScaler
from d3ray.data.errors import ConfigError

SMALL = d3rlpy.models.VectorEncoderFactory([16])
QUIET: dict[str, Any] = {"show_progress": False}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    d3rlpy.seed(1)


def cartpole() -> Any:
    return d3rlpy.datasets.get_dataset("d3ray/cartpole-replay")


def pendulum() -> Any:
    return d3rlpy.datasets.get_dataset("d3ray/pendulum-replay")


def test_quick_start() -> None:
    dataset, env = cartpole()
    dqn = d3rlpy.algos.DQNConfig(encoder_factory=SMALL).create(device=False)
    dqn.build_with_dataset(dataset)
    seen: list[tuple[int, int]] = []
    epochs = dqn.fit(
        dataset,
        n_steps=45,
        n_steps_per_epoch=20,
        evaluators={
            "td_error": d3rlpy.metrics.TDErrorEvaluator(dataset.episodes[:5]),
            "environment": d3rlpy.metrics.EnvironmentEvaluator(env, n_trials=1),
            "mine": lambda algo, data: float(algo.grad_step + data.transition_count),
        },
        callback=lambda algo, epoch, step: seen.append((epoch, step)),
        **QUIET,
    )
    assert [epoch for epoch, _ in epochs] == [1, 2]  # d3rlpy leaves out what is no whole epoch
    assert seen == [(1, step) for step in range(1, 21)] + [(2, step) for step in range(21, 41)]
    assert [metrics["mine"] - dataset.transition_count for _, metrics in epochs] == [20, 40]
    assert epochs[-1][1]["loss"] > 0
    assert epochs[-1][1]["environment"] >= 1
    (folder,) = Path("d3rlpy_logs").glob("DQN_*")
    assert {"params.json", "loss.csv", "td_error.csv", "environment.csv", "model_20.d3", "model_40.d3"} <= {
        file.name for file in folder.iterdir()
    }
    lines = [line.split(",") for line in (folder / "td_error.csv").read_text().splitlines()]
    assert [line[:2] for line in lines] == [["1", "20"], ["2", "40"]]
    assert float(lines[1][2]) == epochs[1][1]["td_error"]  # the evaluator's, whose name a metric of training has too
    observation, _ = env.reset(seed=0)
    action = dqn.predict(np.expand_dims(observation, axis=0))
    value = dqn.predict_value(np.expand_dims(observation, axis=0), action)
    assert action.shape == value.shape == (1,)
    again = d3rlpy.load_learnable(str(folder / "model_40.d3"))
    assert np.array_equal(again.predict(observation[None]), action)
    assert again.grad_step == 40
    made = d3rlpy.algos.DQN.from_json(str(folder / "params.json"))
    made.load_model(str(folder / "model_40.d3"))
    assert np.array_equal(made.predict_value(observation[None], action), value)


def test_quick_start_of_2020() -> None:
    dataset, env = cartpole()
    train_episodes, test_episodes = train_test_split(dataset, test_size=0.2, random_state=0)
    dqn = DQN(batch_size=32, use_gpu=False)
    dqn.fit(
        train_episodes[:20],
        eval_episodes=test_episodes[:3],
        n_epochs=1,
        scorers={
            "td_error": td_error_scorer,
            "value_scale": average_value_estimation_scorer,
            "environment": evaluate_on_environment(env, n_trials=1),
            "soft_opc": soft_opc_scorer(return_threshold=15),
        },
        **QUIET,
    )
    observation, _ = env.reset()
    assert dqn.predict([observation])[0] in (0, 1)
    dqn.save_model("dqn.pt")
    dqn2 = DQN()
    dqn2.load_model("dqn.pt")
    dqn.save_policy("policy.pt")
    dqn.save_policy("policy.onnx", as_onnx=True)
    seen = np.random.default_rng(0).random((32, 4)).astype(np.float32)
    wanted = dqn.predict(seen)
    assert np.array_equal(dqn2.predict(seen), wanted)
    assert np.array_equal(torch.jit.load("policy.pt")(torch.from_numpy(seen)).numpy(), wanted)
    session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {"input_0": seen})[0], wanted)


def test_a_dataset_of_ones_own() -> None:
    rng = np.random.default_rng(0)
    arrays = {"observations": rng.random((1000, 8)), "actions": rng.random((1000, 4)), "rewards": rng.random(1000)}
    terminals = rng.integers(0, 2, 1000)
    dataset = d3rlpy.dataset.MDPDataset(**arrays, terminals=terminals, action_space=d3rlpy.ActionSpace.CONTINUOUS)
    assert dataset.transition_count == 1000
    assert dataset.dataset_info.action_size == 4
    cut = d3rlpy.dataset.MDPDataset(**arrays, terminals=np.zeros(1000), timeouts=terminals)
    assert not cut.episodes[0].terminated
    first = dataset.episodes[0][0]
    walked = 1
    while first.next_transition is not None:
        first, walked = first.next_transition, walked + 1
    assert walked == len(dataset.episodes[0])
    with Path("dataset.h5").open("w+b") as file:
        dataset.dump(file)
    with Path("dataset.h5").open("rb") as file:
        again = d3rlpy.dataset.ReplayBuffer.load(file, d3rlpy.dataset.InfiniteBuffer())
    assert np.allclose(again.rewards, dataset.rewards)
    assert again.size() == dataset.size()
    dataset.dump("mine.h5")
    assert MDPDataset.load("mine.h5").transition_count == 1000


def test_preprocessing_by_name_and_by_hand() -> None:
    dataset, _ = pendulum()
    mean, std = (how(dataset.observations, axis=0, keepdims=True) for how in (np.mean, np.std))
    by_hand = {
        "observation_scaler": d3rlpy.preprocessing.StandardObservationScaler(mean=mean, std=std),
        "action_scaler": d3rlpy.preprocessing.MinMaxActionScaler(
            minimum=np.min(dataset.actions, axis=0, keepdims=True), maximum=np.max(dataset.actions, axis=0, keepdims=True)
        ),
        "reward_scaler": d3rlpy.preprocessing.StandardRewardScaler(mean=np.mean(dataset.rewards), std=np.std(dataset.rewards)),
    }
    by_name = {"observation_scaler": "standard", "action_scaler": "min_max", "reward_scaler": "standard"}
    encoders = {"actor_encoder_factory": SMALL, "critic_encoder_factory": SMALL, "batch_size": 8}
    one, other = (d3rlpy.algos.CQLConfig(**given, **encoders).create() for given in (by_hand, by_name))
    other.seed = one.seed
    for algo in (one, other):
        algo.fit(dataset, n_steps=2, n_steps_per_epoch=2, logger_adapter=d3rlpy.logging.NoopAdapterFactory(), **QUIET)
    assert np.allclose(one.predict(dataset.observations[:9]), other.predict(dataset.observations[:9]), atol=1e-4)
    assert not Path("d3rlpy_logs").exists()
    x = dataset.observations[:5]
    assert np.allclose(StandardScaler(mean=mean, std=std).transform(x), (x - mean) / (std + 1e-3), atol=1e-5)
    low, high = x.min(0), x.max(0)
    scaled = MinMaxScaler(minimum=low, maximum=high).transform(x)
    assert np.allclose([scaled.min(), scaled.max()], [-1, 1])


def test_actions_beyond_the_policys_reach_get_the_scaler_that_d3rlpy_leaves_to_its_users() -> None:
    dataset, _ = pendulum()
    cql = CQL(scaler="standard", q_func_factory="qr", batch_size=8)
    with pytest.warns(UserWarning, match="reach 2: action_scaler is set to 'min_max'"):
        cql.fit(dataset, n_steps=1, n_steps_per_epoch=1, **QUIET)
    cql.save_policy("policy.pt")
    acted = torch.jit.load("policy.pt")(torch.from_numpy(dataset.observations[:64]))
    assert acted.shape == (64, 1)
    assert np.allclose(acted.numpy(), cql.predict(dataset.observations[:64]), atol=1e-5)


class Perceptron(torch.nn.Module):
    def __init__(self, inputs: int, feature_size: int) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.layer = torch.nn.Linear(inputs, feature_size)

    def forward(self, x: torch.Tensor, *action: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(torch.cat([x, *action], dim=1)))


@dataclasses.dataclass()
class PerceptronFactory(d3rlpy.models.EncoderFactory):
    feature_size: int

    def create(self, observation_shape: Any) -> Perceptron:
        return Perceptron(observation_shape[0], self.feature_size)

    def create_with_action(self, observation_shape: Any, action_size: int, discrete_action: bool = False) -> Perceptron:
        return Perceptron(observation_shape[0] + action_size, self.feature_size)

    @staticmethod
    def get_type() -> str:
        return "perceptron-of-a-test"


def test_a_network_of_ones_own() -> None:
    """It computes what one of d3ray's with the same weights does, in ensembles too, and is saved with the algorithm."""
    dataset, _ = pendulum()
    encoders = {"actor_encoder_factory": PerceptronFactory(12), "critic_encoder_factory": PerceptronFactory(12)}
    sac = d3rlpy.algos.SACConfig(**encoders, action_scaler="min_max", batch_size=8).create()
    sac.fit(dataset, n_steps=3, n_steps_per_epoch=3, **QUIET)
    x, a = dataset.observations[:6], dataset.actions[:6]
    tensors = sac.state()[0]
    inputs = torch.from_numpy(np.concatenate([x, sac.config_.action_scaler.transform(a)], 1)).float()
    values = [
        torch.relu(
            inputs @ tensors[f"live/critic/encoder.each.{k}.layer.weight"].T + tensors[f"live/critic/encoder.each.{k}.layer.bias"]
        )
        @ tensors["live/critic/head.weight"][k]
        + tensors["live/critic/head.bias"][k]
        for k in range(2)
    ]
    assert np.allclose(sac.predict_value(x, a), torch.stack(values).mean(0)[:, 0].detach().numpy(), atol=1e-5)
    sac.save("model.d3")
    assert np.array_equal(d3rlpy.load_learnable("model.d3").predict(x), sac.predict(x))


def test_online_and_the_data_that_come_of_it() -> None:
    _, env = cartpole()
    buffer = d3rlpy.dataset.create_fifo_replay_buffer(limit=500, env=env)
    dqn = d3rlpy.algos.DQNConfig(encoder_factory=SMALL, batch_size=8).create()
    steps: list[int] = []
    dqn.fit_online(
        env,
        buffer,
        d3rlpy.algos.ConstantEpsilonGreedy(0.3),
        n_steps=100,
        n_steps_per_epoch=50,
        update_interval=2,
        update_start_step=20,
        eval_env="CartPole-v1",
        eval_n_trials=1,
        callback=lambda algo, epoch, step: steps.append(step),
        **QUIET,
    )
    assert steps == [*range(1, 101)]  # n_steps counts the environment's
    assert dqn.grad_step == 40  # after steps 22, 24, …, 100
    assert buffer.transition_count == 100
    (folder,) = Path("d3rlpy_logs").glob("DQN_online_*")
    assert [line.split(",")[:2] for line in (folder / "evaluation.csv").read_text().splitlines()] == [["1", "50"], ["2", "100"]]
    with Path("replay.h5").open("wb") as file:
        buffer.dump(file)
    assert MDPDataset.load("replay.h5").size() == buffer.size()
    losses = dqn.update(buffer.sample_transition_batch(8))
    assert losses["loss"] >= 0
    assert dqn.grad_step == 41
    collected = dqn.collect(env, n_steps=30, **QUIET)
    assert collected.transition_count == 30
    assert collected.to_mdp_dataset().transition_count == 30
    with pytest.raises(ConfigError, match="eval_env is the very environment"):
        dqn.fit_online(env, eval_env=env, n_steps=1)


def test_online_in_2020() -> None:
    _, env = cartpole()
    dqn = DQN(batch_size=8, learning_rate=2.5e-4, target_update_interval=100)
    buffer = ReplayBuffer(maxlen=1000, env=env)
    explorer = LinearDecayEpsilonGreedy(start_epsilon=1.0, end_epsilon=0.1, duration=100)
    assert explorer.compute_epsilon(50) == pytest.approx(0.55)
    dqn.fit_online(env, buffer, explorer, n_epochs=2, n_steps_per_epoch=50, n_updates_per_epoch=10, save_metrics=False, **QUIET)
    assert buffer.to_mdp_dataset().transition_count == 100
    assert dqn.grad_step == 19  # every fifth step from the tenth on, when there are as many transitions as a batch takes
    assert not Path("d3rlpy_logs").exists()


def test_random_policies() -> None:
    _, env = cartpole()
    buffer = d3rlpy.dataset.create_fifo_replay_buffer(limit=100, env=env)
    policy = d3rlpy.algos.DiscreteRandomPolicyConfig().create()
    policy.collect(env, buffer, n_steps=60, **QUIET)
    assert 0.2 < buffer.to_mdp_dataset().actions.mean() < 0.8
    continuous = d3rlpy.algos.RandomPolicyConfig(distribution="normal", normal_std=0.1).create()
    continuous.create_impl((3,), 2)
    drawn = continuous.predict(np.zeros((500, 3)))
    assert drawn.shape == (500, 2)
    assert 0.08 < drawn.std() < 0.12


def test_an_explorer_of_ones_own() -> None:
    class Left(d3rlpy.algos.Explorer):
        def sample(self, algo: Any, x: Any, step: int) -> np.ndarray:
            assert algo is dqn
            return np.zeros(len(x), np.int64)

    _, env = cartpole()
    buffer = d3rlpy.dataset.create_fifo_replay_buffer(limit=500, env=env)
    dqn = d3rlpy.algos.DQNConfig(encoder_factory=SMALL, batch_size=8).create()
    dqn.fit_online(env, buffer, Left(), n_steps=20, n_steps_per_epoch=20, **QUIET)
    assert not buffer.to_mdp_dataset().actions.any()


def test_from_offline_to_online_and_from_one_algorithm_to_another() -> None:
    dataset, env = pendulum()
    encoders = {"actor_encoder_factory": SMALL, "critic_encoder_factory": SMALL}
    cql = d3rlpy.algos.CQLConfig(**encoders, action_scaler="min_max", batch_size=8).create()
    epochs = list(cql.fitter(dataset, n_steps=4, n_steps_per_epoch=2, **QUIET))
    assert [epoch for epoch, _ in epochs] == [1, 2]
    sac = d3rlpy.algos.SACConfig(**encoders, action_scaler="min_max", batch_size=8).create()
    sac.build_with_dataset(dataset)
    sac.copy_policy_from(cql)
    sac.copy_q_function_from(cql)
    assert np.array_equal(sac.predict(dataset.observations[:5]), cql.predict(dataset.observations[:5]))
    sac.fit_online(env, n_steps=20, n_steps_per_epoch=20, **QUIET)
    assert sac.grad_step == 12  # from step 9 on, when eight transitions have a next observation
    stepped = SAC(n_steps=3, batch_size=8, action_scaler="min_max")
    assert stepped.td_steps == 3


def test_steps_of_returns_and_stacks_of_frames_are_the_buffers_there() -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (60, 1, 36, 36)).astype(np.uint8)
    actions, rewards, ends = rng.integers(0, 2, (60, 1)), rng.random(60), np.arange(60) % 20 == 19
    picker = d3rlpy.dataset.FrameStackTransitionPicker(n_frames=4)
    dataset = d3rlpy.dataset.MDPDataset(frames, actions, rewards, ends, transition_picker=picker)
    encoder = d3rlpy.models.PixelEncoderFactory(filters=[[4, 8, 4]], feature_size=8)
    scaler = d3rlpy.preprocessing.PixelObservationScaler()
    dqn = d3rlpy.algos.DQNConfig(batch_size=4, encoder_factory=encoder, observation_scaler=scaler).create()
    dqn.fit(dataset, n_steps=2, n_steps_per_epoch=2, **QUIET)
    assert dqn.observation_shape == (4, 36, 36)
    stepped = d3rlpy.dataset.MDPDataset(
        frames, actions, rewards, ends, transition_picker=d3rlpy.dataset.MultiStepTransitionPicker(3)
    )
    dqn = d3rlpy.algos.DQNConfig(batch_size=4, encoder_factory=encoder, observation_scaler=scaler).create()
    dqn.fit(stepped, n_steps=1, n_steps_per_epoch=1, **QUIET)
    assert dqn.config_.td_steps == 3


def test_metrics_every_so_many_steps_and_where_they_go() -> None:
    pytest.importorskip("tensorboardX")
    seen: list[Any] = []

    class Adapter(d3rlpy.logging.NoopAdapter):
        def write_metric(self, epoch: int, step: int, name: str, value: float) -> None:
            if name == "loss":
                seen.append((epoch, step))

        def close(self) -> None:
            seen.append("closed")

    class Factory:
        def create(self, algo: Any, experiment_name: str, n_steps_per_epoch: int) -> Adapter:
            seen.append((experiment_name, n_steps_per_epoch))
            return Adapter()

    dataset, _ = cartpole()
    dqn = d3rlpy.algos.DQNConfig(encoder_factory=SMALL, batch_size=8).create()
    both = [Factory(), d3rlpy.logging.TensorboardAdapterFactory(), d3rlpy.logging.FileAdapterFactory("logs")]
    how: Any = {"logging_strategy": d3rlpy.LoggingStrategy.STEPS, "logging_steps": 4, "experiment_name": "mine"}
    dqn.fit(
        dataset,
        n_steps=12,
        n_steps_per_epoch=6,
        with_timestamp=False,
        save_interval=2,
        logger_adapter=d3rlpy.logging.CombineAdapterFactory(both),
        **how,
        **QUIET,
    )
    assert seen == [("mine", 6), (1, 4), (2, 8), (2, 12), "closed"]
    assert [*Path("tensorboard_logs/mine").glob("events.*")]
    assert Path("logs/mine/model_12.d3").exists()
    assert not Path("logs/mine/model_6.d3").exists()
    dqn.fit(dataset, n_steps=10, n_steps_per_epoch=5, **how, **QUIET)  # goes on from step 12, and counts from 0
    (folder,) = Path("d3rlpy_logs").iterdir()
    assert [line.split(",")[:2] for line in (folder / "loss.csv").read_text().splitlines()] == [["1", "4"], ["2", "8"]]
    with pytest.raises(ConfigError, match="wandb, which is not installed"):
        d3rlpy.logging.WanDBAdapterFactory()


def test_a_decision_transformer() -> None:
    dataset, env = pendulum()
    dt = d3rlpy.algos.DecisionTransformerConfig(
        batch_size=4, context_size=4, num_layers=1, encoder_factory=SMALL, action_scaler="min_max"
    ).create()
    dt.fit(dataset, n_steps=2, n_steps_per_epoch=2, **QUIET)
    actor = dt.as_stateful_wrapper(target_return=0.0)
    observation, _ = env.reset(seed=0)
    assert actor.predict(observation, 0.0).shape == (1,)


def test_fitted_q_evaluation() -> None:
    dataset, _ = pendulum()
    bc = BC(action_scaler="min_max", batch_size=8)
    bc.fit(dataset, n_steps=1, n_steps_per_epoch=1, **QUIET)
    config = d3rlpy.ope.FQEConfig(learning_rate=3e-4, action_scaler="min_max", batch_size=8)
    fqe = d3rlpy.ope.FQE(algo=bc, config=config)
    ((_, metrics),) = fqe.fit(
        dataset,
        n_steps=2,
        n_steps_per_epoch=2,
        evaluators={"initial": d3rlpy.metrics.InitialStateValueEstimationEvaluator()},
        **QUIET,
    )
    assert np.isfinite(metrics["initial"])
    assert np.isfinite(metrics["loss"])


def test_scikit_learn_and_devices() -> None:
    dataset, _ = cartpole()
    found = cross_validate(
        DQN(batch_size=8, q_func_type="mean"),
        dataset.episodes[:9],
        cv=3,
        scoring={"td_error": td_error_scorer},
        params={"n_steps": 1, "n_steps_per_epoch": 1, "save_metrics": False, **QUIET},
    )
    assert np.isfinite(found["test_td_error"]).all()
    search = GridSearchCV(DQN(batch_size=8), {"learning_rate": [1e-4, 1e-3]}, scoring={"td": td_error_scorer}, refit=False, cv=2)
    search.fit(dataset.episodes[:6], n_steps=1, n_steps_per_epoch=1, save_metrics=False, **QUIET)
    assert len(search.cv_results_["mean_test_td"]) == 2
    assert copy.deepcopy(Device(0)).get_id() == 0
    augmented = DiscreteCQL(augmentation=["single_amplitude_scaling"], n_augmentations=2, batch_size=8)
    augmented.fit(dataset, n_steps=1, n_steps_per_epoch=1, **QUIET)


def test_params_of_d3rlpys_own_are_read() -> None:
    """`params.json` as d3rlpy 2.8.1 writes it: spaces, and a config with a type."""
    configs = json.loads((Path(__file__).parent / "d3_files/configs.json").read_text())
    params = {"observation_shape": [3], "action_size": 2, "config": {"type": "cql", "params": configs["cql"]}}
    Path("params.json").write_text(json.dumps(params))
    cql = CQL.from_json("params.json")
    assert cql.observation_shape == (3,)
    assert cql.predict(np.zeros((1, 3), np.float32)).shape == (1, 2)
    with pytest.raises(ConfigError, match="It is a CQL, not a SAC"):
        SAC.from_json("params.json")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: d3rlpy.algos.DQNConfig(learnin_rate=1.0), "'learnin_rate'"),
        (lambda: d3rlpy.algos.DQNConfig(q_func_factory="qrr"), "q_func_factory is 'qrr', which d3rlpy has not; did you mean 'qr'"),
        (lambda: d3rlpy.algos.TACRConfig, "no 'TACRConfig'"),
        (lambda: d3rlpy.dataset.create_fifo_replay_buffer(10), "needs to know its spaces"),
    ],
)
def test_what_is_not_here_is_said(wrong: Any, message: str) -> None:
    with pytest.raises((ConfigError, ValueError, AttributeError), match=message):
        wrong()


@pytest.mark.parametrize("name", ["BCQ", "BEAR", "CRR", "SAC", "IQL", "PLAS"])
def test_algorithms_that_choose_among_draws_train_and_are_exported_under_d3rlpys_names(name: str) -> None:
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(60, 3)), rng.uniform(-1, 1, (60, 2)), rng.normal(size=60), np.arange(60) % 20 == 19
    config = getattr(d3rlpy.algos, f"{name}Config")
    algo = config(batch_size=8, actor_encoder_factory=SMALL, critic_encoder_factory=SMALL).create()
    algo.fit(MDPDataset(*arrays), n_steps=2, n_steps_per_epoch=2, **QUIET)
    assert algo.predict(arrays[0][:4]).shape == (4, 2)
    algo.save_policy("policy.onnx")
    session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].name == "input_0"
    assert session.get_outputs()[0].name == "output_0"


def test_nothing_of_an_algorithm_is_hidden() -> None:
    """What `Learnable` adds has names that no algorithm uses for something else."""
    from d3ray.algos.base import Algorithm
    from d3ray.algos.registry import algorithm_class, algorithm_names
    from d3ray.d3rlpy.learnable import Learnable

    added = {name for name in vars(Learnable) if not hasattr(Algorithm, name)}
    for name in algorithm_names():
        assert not added & {attribute for cls in algorithm_class(name).__mro__ for attribute in vars(cls)}, name


def test_modules_are_found_where_d3rlpy_has_them() -> None:
    from d3ray.d3rlpy.algos.qlearning.explorers import NormalNoise
    from d3ray.d3rlpy.dataset.buffers import InfiniteBuffer
    from d3ray.d3rlpy.metrics.evaluators import TDErrorEvaluator

    assert d3rlpy.models.encoders.VectorEncoderFactory is d3rlpy.models.VectorEncoderFactory
    assert InfiniteBuffer is d3rlpy.dataset.InfiniteBuffer
    assert TDErrorEvaluator is d3rlpy.metrics.TDErrorEvaluator
    assert NormalNoise(std=0.2).std == 0.2
    _, env = cartpole()
    d3rlpy.envs.seed_env(env, 1)
    dataset, _ = cartpole()
    dqn = d3rlpy.algos.DQNConfig(encoder_factory=SMALL).create()
    dqn.build_with_dataset(dataset)
    for _ in range(2):
        dqn.save_model("model.pt")  # what is there is replaced, as there
