"""Q-functions of a user's own run in d3ray's pages: C51's atoms, and Rainbow's dueling head of noisy layers."""

import math

import numpy as np
import onnxruntime
import pytest
import torch

from d3ray.algos import testing
from d3ray.algos.actor_critic.sac import SAC
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.networks.q_functions import Values, register_q_function
from d3ray.algos.networks.q_functions.registry import KINDS
from d3ray.algos.values.dqn import DQN
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.spec import Box

from .toy_q_functions import Categorical, Rainbow


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(KINDS, "known", dict(KINDS.known))
    assert register_q_function(Categorical) is Categorical
    register_q_function(Rainbow)


def test_a_cross_entropy_worked_by_hand():
    space = Box(shape=(2,), dtype="float32")
    critic = Categorical(low=0.0, high=2.0, n_atoms=3).discrete(VectorEncoder(hidden_units=(4,)), space, 2, 1).double()
    with torch.no_grad():
        critic.head.weight.zero_()
        critic.head.bias.copy_(torch.tensor([1, 1, 1, 1, 2, 5.0]).log())  # p = (1/3, 1/3, 1/3) and (1/8, 2/8, 5/8)
    observation, action = torch.zeros(3, 2, dtype=torch.float64), torch.tensor([0, 1, 1])
    atoms, weights = torch.tensor([[[0.5, 1.75, -1], [0.5, 1, 9]], [[0.5, 1, 0.25], [0.5, 0, 0.75]]], dtype=torch.float64)
    goal = Values(atoms, weights)  # [N, B]: the first state's all at 0.5, the second's at 1.75, the third's beyond both ends
    loss, metrics = critic.td_loss(observation, action, goal)
    by_hand = [math.log(3), -(0.25 * math.log(2 / 8) + 0.75 * math.log(5 / 8)), -(0.25 * math.log(1 / 8) + 0.75 * math.log(5 / 8))]
    assert loss[0].tolist() == pytest.approx(by_hand)
    assert metrics["q_value"].tolist() == pytest.approx([1, 1.5, 1.5])
    assert metrics["td_error"].tolist() == pytest.approx([0.5, 0.25, 5])
    assert critic(observation)[0, 0].tolist() == pytest.approx([1, 1.5])
    whole, taken = critic.distributions(observation), critic.distribution(observation, lambda values: values.mean(0).argmax(-1))
    assert whole.atoms.shape == (1, 2, 3, 3)
    torch.testing.assert_close(taken.weights[0, :, 0], torch.tensor([1, 2, 5]).double() / 8)


def test_dqn_with_atoms_keeps_the_contract():
    testing.check_algorithm(DQN, q_function="categorical", n_critics=2)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (DQN, {"q_function": "rainbow"}),
        (DQN, {"q_function": "rainbow", "n_critics": 3, "share_encoder": True, "bootstrap": True}),
        (TD3, {"q_function": "categorical", "bootstrap": True}),
        (SAC, {"q_function": "categorical"}),
    ],
)
def test_pages_take_what_they_do_not_know(algorithm, settings):
    make = testing.maker(algorithm, **settings)
    testing.check_learns_something(make)
    testing.check_row_equals_single_run(make)
    testing.check_resumes_bit_for_bit(make)
    testing.check_update_reads_no_value(make)
    testing.check_randomness_has_addresses(make)
    testing.check_predictions(make)
    testing.check_settings_round_trip(make)


@pytest.mark.parametrize("name", ["categorical", "rainbow"])
def test_policies_are_exported_at_rest(name, tmp_path):
    dataset = testing.tiny_dataset(discrete=True)
    made = testing.maker(DQN, q_function=name, n_critics=2, learning_rate=1e-2)().fit(dataset, 20)
    made.save_policy(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"])
    for n in (1, 7, 64):
        x = 30 * dataset.columns["observation"][:n]  # far apart, or a policy so young may act alike everywhere
        (action,) = session.run(["action"], {"observation": x})
        np.testing.assert_array_equal(action, made.predict(x))
        np.testing.assert_array_equal(action, made.predict(x))
    assert len(set(action.tolist())) > 1
    made.save(tmp_path / "made")
    again = DQN.load(tmp_path / "made")
    assert again.config_.q_function == made.config_.q_function
    np.testing.assert_array_equal(again.predict(x), made.predict(x))


def test_atoms_learn_the_distribution_of_a_return():
    """Rewards of 0 or 10 by chance, a quarter 10; the first of two steps is worth the second by γ = 0.5."""
    rng = np.random.default_rng(0)
    n = 2_000
    reward = np.where(rng.uniform(size=n) < 0.25, 10.0, 0.0).astype(np.float32)
    last = np.arange(n) % 2 == 1
    dataset = Dataset.from_arrays(
        last[:, None].astype(np.float32), np.zeros(n, np.int64), np.where(last, reward, 0), last, np.zeros(n, bool), name="coins"
    )
    atoms = {"name": "categorical", "low": 0.0, "high": 10.0, "n_atoms": 5}  # 0, 2.5, 5, 7.5, 10
    settings = {"gamma": 0.5, "learning_rate": 3e-2, "batch_size": 64, "target_update_interval": 50}
    made = DQN(q_function=atoms, encoder={"hidden_units": (8,)}, **settings).fit(dataset, 800)
    following = made.fit_.nets().critic.distribution(torch.tensor([[0.0], [1.0]]), torch.zeros(2, dtype=torch.int64)).weights[0]
    assert following[:, 1].tolist() == pytest.approx([0.75, 0, 0, 0, 0.25], abs=0.05)
    assert following[:, 0].tolist() == pytest.approx([0.75, 0, 0.25, 0, 0], abs=0.05)


def test_names_are_checked():
    with pytest.raises(ConfigError, match="There is a Q-function 'mean' already"):
        register_q_function(type("Mine", (Categorical,), {"__annotations__": {"name": str}, "name": "mean"}))
    with pytest.raises(ConfigError, match=r"DQN: q_function\.n_atoms is 1; input should be greater than 1"):
        DQN(q_function={"name": "categorical", "n_atoms": 1}).check_settings()
    with pytest.raises(ConfigError, match=r"DQN has no setting 'q_function\.atoms'; did you mean 'n_atoms'"):
        DQN(q_function={"name": "categorical", "atoms": 3}).check_settings()
    with pytest.raises(ConfigError, match="q_function is 3; it must be a name or settings with a name, of mean, qr"):
        DQN(q_function=3).check_settings()
    with pytest.raises(ConfigError, match="it needs a name, of mean, qr"):
        DQN(q_function={"n_quantiles": 8}).check_settings()
    assert DQN(q_function=Categorical(n_atoms=7)).check_settings().q_function.n_atoms == 7
