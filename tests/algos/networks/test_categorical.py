"""Critics of probabilities on fixed atoms: C51's, and with Rainbow's head."""

import math
import warnings

import numpy as np
import onnxruntime
import pytest
import torch

from d3ray.algos import testing
from d3ray.algos.networks.encoders import VectorEncoder
from d3ray.algos.networks.q_functions import Categorical, Values
from d3ray.algos.values.dqn import DQN
from d3ray.data.dataset import Dataset
from d3ray.data.spec import Box

RAINBOW = {"name": "categorical", "dueling": True, "stream_units": 6, "noisy": 0.5, "v_min": -5.0, "v_max": 5.0}
ATOMS = {"name": "categorical", "v_min": -5.0, "v_max": 5.0, "n_atoms": 11}


def test_a_cross_entropy_worked_by_hand():
    space = Box(shape=(2,), dtype="float32")
    critic = Categorical(v_min=0.0, v_max=2.0, n_atoms=3).discrete(VectorEncoder(hidden_units=(4,)), space, 2, 1).double()
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


@pytest.mark.parametrize("q_function", [ATOMS, RAINBOW], ids=["atoms", "rainbow"])
def test_policies_are_exported_at_rest(q_function, tmp_path):
    dataset = testing.tiny_dataset(discrete=True)
    made = testing.maker(DQN, q_function=q_function, n_critics=2, learning_rate=1e-2)().fit(dataset, 20)
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
    atoms = {"name": "categorical", "v_min": 0.0, "v_max": 10.0, "n_atoms": 5}  # 0, 2.5, 5, 7.5, 10
    settings = {"gamma": 0.5, "learning_rate": 3e-2, "batch_size": 64, "target_update_interval": 50}
    made = DQN(q_function=atoms, encoder={"hidden_units": (8,)}, **settings).fit(dataset, 800)
    following = made.fit_.nets().critic.distribution(torch.tensor([[0.0], [1.0]]), torch.zeros(2, dtype=torch.int64)).weights[0]
    assert following[:, 1].tolist() == pytest.approx([0.75, 0, 0, 0, 0.25], abs=0.05)
    assert following[:, 0].tolist() == pytest.approx([0.75, 0, 0.25, 0, 0], abs=0.05)


def test_returns_beyond_the_atoms_are_told_before_training():
    """With both pairs of numbers, in the units that the critic sees; of γ = 0.5 and rewards of 4 the return nears 8."""
    n = 40
    last = np.arange(n) % 20 == 19
    arrays = np.zeros((n, 1), np.float32), np.zeros(n, np.int64), np.full(n, 4.0, np.float32), last, np.zeros(n, bool)
    dataset = Dataset.from_arrays(*arrays, name="fours")
    with pytest.warns(UserWarning, match=r"DQN: .* of 'fours' lie from 4 to 8, and its critic's atoms from -5 to 5"):
        DQN(q_function=ATOMS, gamma=0.5).fit(dataset, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DQN(q_function=ATOMS, gamma=0.5, reward_scaler={"name": "multiply", "multiplier": 0.5}).fit(dataset, 1)
        DQN(q_function={**ATOMS, "v_max": 8.0}, gamma=0.5).fit(dataset, 1)
