"""Fitted Q evaluation: its loss beside a loop, a chain whose values are known, who acts, and what is kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import BC, DQN, FQE, Dataset, DiscreteFQE, ReplayBuffer, load
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.sampling import TransitionSampler
from d3ray.ope import FQE as OPE_FQE
from d3ray.ope import FQEConfig

from ..loss_values import evaluate, networks, prepared


@pytest.mark.parametrize("page", [FQE, DiscreteFQE])
def test_each_critic_goes_towards_its_own_target_at_what_the_policy_does(page: Any) -> None:
    made, learner, batch = prepared(page, n_critics=2)
    found, _, _ = evaluate(made, learner, batch, made.critic_loss)
    run = networks(learner)
    for i in range(len(found)):
        seen, then = batch.observation[i].numpy(), batch.next_observation[i].numpy()
        losses = []
        for member in range(2):
            if page is FQE:
                action = np.tanh(then[:3].astype(np.float32))
                goal = run("target", "critic", np.concatenate((then, action)), member)[0]
                value = run("live", "critic", np.concatenate((seen, batch.action[i].numpy())), member)[0]
            else:
                goal = run("target", "critic", then, member)[int(np.argmax(then[:3]))]
                value = run("live", "critic", seen, member)[int(batch.action[i])]
            losses.append((float(batch.reward[i] + batch.discount[i] * goal) - value) ** 2)
        assert found[i] == pytest.approx(sum(losses), rel=1e-9)


class Always:
    """One action, whatever is seen."""

    def __init__(self, action: int, dataset: Dataset) -> None:
        self.action, self.spec = action, dataset.spec

    def start(self, n: int) -> None: ...

    def step(self, state: None, observation: Any) -> tuple[None, np.ndarray]:
        return state, self.predict(observation)

    def predict(self, observation: Any) -> np.ndarray:
        return np.full(len(observation), self.action)


def chain(n: int = 4000, states: int = 4) -> Dataset:
    """Steps to the right, or back to the first state, at random; the reward is 1 for leaving the last one to the right, an end."""
    rng, rows, state = np.random.default_rng(0), [], 0
    for _ in range(n):
        action = int(rng.random() < 0.7)
        ended = action == 1 and state == states - 1
        rows.append((state, action, float(ended), ended))
        state = 0 if ended or action == 0 else state + 1
    seen, action, reward, ended = map(np.array, zip(*rows, strict=True))
    return Dataset.from_arrays(np.eye(states, dtype=np.float32)[seen], action, reward, ended, name="chain")


@pytest.mark.long
def test_the_value_of_a_policy_is_found_and_not_that_of_the_data_or_of_the_best() -> None:
    data, gamma = chain(), 0.8
    settings: Any = {
        "gamma": gamma,
        "learning_rate": 3e-3,
        "target_update_interval": 20,
        "encoder": VectorEncoder(hidden_units=(32,)),
    }
    right, left = (DiscreteFQE(algo=Always(a, data), **settings).fit(data, 1500, 1500) for a in (1, 0))
    seen = np.eye(4, dtype=np.float32)
    np.testing.assert_allclose(right.predict_value(seen, np.ones(4, int)), [gamma**3, gamma**2, gamma, 1], atol=0.02)
    np.testing.assert_allclose(right.predict_value(seen, np.zeros(4, int)), np.full(4, gamma**4), atol=0.02)
    np.testing.assert_allclose(left.predict_value(seen, np.ones(4, int)), [0, 0, 0, 1], atol=0.02)
    np.testing.assert_allclose(left.predict_value(seen, np.zeros(4, int)), np.zeros(4), atol=0.02)


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_a_mean_is_found_where_episodes_end_by_chance(scale: float) -> None:
    """One state, a reward of -1 a step, and an end with a chance of 0.2: V = -1 / (1 - 0.8 γ). A median would be -1 / (1 - γ)."""
    rng, n = np.random.default_rng(0), 4_000
    ended = rng.random(n) < 0.2
    ended[-1] = True
    data = Dataset.from_arrays(np.ones((n, 1), np.float32), rng.integers(0, 2, n), np.full(n, -scale), ended, name="chance")
    settings: Any = {"gamma": 0.9, "learning_rate": 1e-2, "target_update_interval": 20, "batch_size": 256}
    made = DiscreteFQE(algo=Always(1, data), encoder={"hidden_units": (8,)}, **settings).fit(data, 800, 800)
    truth = -scale / (1 - 0.9 * (1 - ended.mean()))
    assert made.predict_value(np.ones((1, 1), np.float32), np.ones(1, int))[0] == pytest.approx(truth, rel=0.06)


def test_what_is_bootstrapped_stays_within_what_rewards_allow() -> None:
    data = chain(200)
    made = DiscreteFQE(algo=Always(1, data), gamma=0.8, value_bounds="rewards", dtype="float64").fit(data, 3, 3)
    assert made.config_.value_bounds == (0.0, pytest.approx(5.0))  # rewards are 0 and 1
    endless = DiscreteFQE(algo=Always(1, data), gamma=1.0, value_bounds="rewards").build_with_dataset(data)
    assert endless.config_.value_bounds is None  # what is judged may go on for longer than what was logged
    learner, batch = made.fit_.learner, made.fit_.sampler(data).sample(5)
    state = learner.state()
    raised = {n: t + 100 if n.startswith("target/") and n.endswith("head.bias") else t for n, t in state.items()}
    assert sum((raised[n] != t).any().item() for n, t in state.items()) == 1
    learner.load_state(raised, 3)
    goals = {}
    for bounds in (made.config_.value_bounds, None):
        made.fit_.config = made.config_.model_copy(update={"value_bounds": bounds})
        goals[bounds] = learner.look(made.goal, batch).mean[0]
    clipped, free = goals.values()
    assert (free - batch.reward)[batch.discount > 0].min() > 5
    assert clipped.numpy() == pytest.approx((batch.reward + batch.discount * 5).numpy())


def test_actions_are_the_judged_policys_and_values_its_own(tmp_path: Path) -> None:
    data = tiny_dataset(discrete=False)
    judged = BC(seed=1, observation_scaler="standard").fit(data, 20, 20)
    fqe = FQE(algo=judged, seed=2, observation_scaler="min_max", n_critics=3).fit(data, 30, 10, {"held_out": HeldOut(data)})
    seen = data.columns["observation"][:9]
    np.testing.assert_array_equal(fqe.predict(seen), judged.predict(seen))
    np.testing.assert_array_equal(fqe.sample_action(seen), judged.predict(seen))
    value, spread = fqe.predict_value(seen, fqe.predict(seen), with_std=True)
    assert value.shape == spread.shape == (9,)
    assert (spread > 0).all()
    assert len(fqe.eval_results_["held_out/critic_loss"]) == 3
    judged.save(tmp_path / "judged")
    fqe.save(tmp_path / "fqe")
    again = load(tmp_path / "fqe")
    np.testing.assert_array_equal(again.predict_value(seen, judged.predict(seen)), value)
    with pytest.raises(ConfigError, match="judges no policy: say which with algo"):
        again.predict(seen)
    by_path = FQE(algo=str(tmp_path / "judged"), seed=2, observation_scaler="min_max", n_critics=3).fit(data, 30, 10)
    np.testing.assert_array_equal(by_path.predict_value(seen, judged.predict(seen)), value)
    by_path.predict(seen)
    shutil.rmtree(tmp_path / "judged")
    np.testing.assert_array_equal(by_path.predict(seen), judged.predict(seen))  # it was read once
    judged.save(tmp_path / "judged")
    by_path.save(tmp_path / "by_path")
    np.testing.assert_array_equal(load(tmp_path / "by_path").predict(seen), judged.predict(seen))
    other = FQE(algo=judged, n_critics=3).build_with_dataset(data)
    with pytest.warns(UserWarning, match="scaler"):
        other.copy_from(again, "critic")
    assert other.predict_value(seen, fqe.predict(seen)) != pytest.approx(value)  # it sees other numbers
    fqe.save_policy(tmp_path / "policy.onnx")
    onnx = FQE(algo=str(tmp_path / "policy.onnx"), seed=2, observation_scaler="min_max", n_critics=3).fit(data, 30, 10)
    np.testing.assert_allclose(onnx.predict_value(seen, judged.predict(seen)), value, rtol=1e-4, atol=1e-5)


def test_held_out_losses_are_of_the_policy_that_is_judged() -> None:
    data, held_out = tiny_dataset(discrete=True), HeldOut(tiny_dataset(discrete=True))
    judges = [DiscreteFQE(algo=Always(a, data)).fit(data, 5, 5) for a in (0, 1)]
    told = [held_out(fqe, 1)["critic_loss"] for fqe in judges]
    assert told == [HeldOut(data)(fqe, 1)["critic_loss"] for fqe in judges]
    assert told[0] != told[1]


def test_online_the_policy_is_asked_at_every_draw() -> None:
    dqn = DQN().build_with_env("CartPole-v1")
    fqe = DiscreteFQE(algo=dqn, observation_scaler={"name": "standard", "mean": [0.0] * 4, "std": [1.0] * 4}, seed=1)
    buffer = ReplayBuffer(200, dqn.spec_)
    fqe.fit_online("CartPole-v1", buffer, n_steps=20, update_start_step=120, n_steps_per_epoch=20)
    batch = fqe.fit_.sources.over(buffer).sample(3)
    np.testing.assert_array_equal(batch.extra["following"].numpy(), dqn.predict(batch.next_observation.numpy()))
    data = fqe.collect("CartPole-v1", n_steps=40)
    np.testing.assert_array_equal(data.columns["action"][:9], dqn.predict(data.columns["observation"][:9]))


def test_what_cannot_be_judged_is_refused_in_a_sentence(tmp_path: Path) -> None:
    data = tiny_dataset(discrete=False)
    cases: dict[str, tuple[Any, Any]] = {
        "judges no policy: say which": (None, ConfigError),
        "int is no policy that could be judged": (3, ConfigError),
        "actions of shape": (DQN().build_with_dataset(tiny_dataset(discrete=True)), DataError),
        "FQE has not been trained yet": (FQE(), ConfigError),
    }
    for said, (algo, error) in cases.items():
        with pytest.raises(error, match=said):
            FQE(algo=algo).fit(data, 1, 1)
    assert OPE_FQE is FQE
    assert FQE.Config is FQEConfig
    built = FQE(algo=maker(BC)().fit(data, 1, 1)).fit(data, 1, 1)
    with pytest.raises(DataError, match="does not say what the policy would do next"):
        built.update(TransitionSampler(data, 8).sample(0))
    assert set(built.update(built.fit_.sampler(data).sample(1))) >= {"critic_loss", "q_value"}
    with pytest.raises(DataError, match="DiscreteFQE"):
        FQE(algo=None).fit(tiny_dataset(discrete=True), 1, 1)
