"""Q-functions in algorithms: reductions of ensembles, masks, the contract, exports, settings."""

import numpy as np
import onnxruntime
import pytest
import torch
from torch.func import vmap

from d3ray.algos import testing
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.nets import Nets
from d3ray.algos.networks.q_functions import Values, bootstrap_mask, picked, reduced
from d3ray.algos.stack import Stack
from d3ray.algos.values.dqn import DQN
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError
from d3ray.data.random import fold, root_key

# ---- reductions


def test_reductions_of_cases_worked_by_hand():
    values = torch.tensor([[1.0, 5.0], [3.0, 4.0], [2.0, 9.0]])
    assert reduced(values, "min").tolist() == [1, 4]
    assert reduced(values, "max").tolist() == [3, 9]
    assert reduced(values, "mean").tolist() == [2, 6]
    assert reduced(values, "none").tolist() == values.tolist()
    assert reduced(values, "mix", 0.75).tolist() == [1.5, 5.25]
    # by expectation: of the first sample the members' means are 2 and 2.5, of the second 6 and 1; least atoms would mislead
    atoms = torch.tensor([[[0.0, 5.0], [4.0, 7.0]], [[2.0, -8.0], [3.0, 10.0]]])  # [members, atoms, samples]
    alike = Values(atoms)
    assert reduced(alike, "min").atoms.tolist() == [[0, -8], [4, 10]]
    assert reduced(alike, "max").atoms.tolist() == [[2, 5], [3, 7]]
    assert reduced(alike, "mean").atoms.tolist() == [[1, -1.5], [3.5, 8.5]]
    assert reduced(alike, "mix", 0.5).atoms.tolist() == [[1, -1.5], [3.5, 8.5]]
    assert reduced(alike, "none") is alike
    assert picked(atoms, torch.tensor(1).expand(2)).tolist() == [[5, 7], [-8, 10]]


@pytest.mark.parametrize("how", ["min", "max", "mean", "mix", "none"])
@pytest.mark.parametrize("shape", [(3, 4), (3, 1, 4), (3, 5, 4), (1, 5, 4)])
def test_reductions_run_stacked_and_on_meta_tensors(how, shape):
    numbers = torch.randn(6, *shape, generator=torch.Generator().manual_seed(0))
    if len(shape) == 2:
        rows = vmap(lambda one: reduced(one, how, 0.75))(numbers)
        torch.testing.assert_close(rows, torch.stack([reduced(one, how, 0.75) for one in numbers]), rtol=0, atol=0)
        assert reduced(numbers[0].to("meta"), how, 0.75).shape == rows.shape[1:]
        return
    x = numbers
    every = vmap(lambda one: reduced(Values(one), how, 0.75))(x)  # values go into `vmap` and come out of it
    rows = every.atoms
    assert every.weights is None
    torch.testing.assert_close(rows, torch.stack([reduced(Values(one), how, 0.75).atoms for one in x]), rtol=0, atol=0)
    assert reduced(Values(x[0].to("meta")), how, 0.75).atoms.shape == rows.shape[1:]
    if how in ("min", "max") and len(shape) == 3:  # whole members
        for b in range(shape[2]):
            means = x[0, :, :, b].mean(1)
            chosen = means.argmin() if how == "min" else means.argmax()
            assert torch.equal(rows[0, :, b], x[0, chosen, :, b])


# ---- masks and the spread of critics


def test_a_transitions_mask_is_the_same_whenever_it_is_drawn():
    key, index = root_key(1), torch.tensor([7, 123_456, 7, 0])
    mask = bootstrap_mask(key, index, 3, torch.float64)
    assert mask.shape == (3, 4)
    assert torch.equal(mask[:, 0], mask[:, 2])
    assert torch.equal(mask, bootstrap_mask(key, index.flip(0), 3, torch.float64).flip(1))
    many = torch.arange(20_000)
    whole = bootstrap_mask(key, many, 3, torch.float64)
    assert set(whole.unique().tolist()) == {0.0, 1.0}
    assert whole.mean(1).tolist() == pytest.approx([0.5] * 3, abs=0.012)  # three standard deviations and more
    for one, two in (
        (whole[0], whole[1]),
        (whole[1], whole[2]),
        (whole[0], bootstrap_mask(root_key(2), many, 3, torch.float64)[0]),
    ):
        assert (one == two).double().mean().item() == pytest.approx(0.5, abs=0.012)


@pytest.mark.parametrize("algorithm", [DQN, TD3])
def test_masks_multiply_each_critics_losses(algorithm):
    dataset = testing.tiny_dataset(discrete=algorithm is DQN)
    made = testing.maker(algorithm, n_critics=3, bootstrap=True)(dtype="float64", seed=5).fit(dataset, 2)
    learner, batch = made.fit_.learner, made.fit_.sampler(dataset).sample(2)
    key = learner.address(made.critic_loss)
    nets = Nets(learner.modules, {}, Nets(learner._targets, {}, None, key, torch.float64), key, torch.float64)
    each = made.critic_loss(nets, batch, learner._h)[0]
    mask = bootstrap_mask(fold(root_key(5), "bootstrap"), batch.index, 3, torch.float64)
    expected = sum(each[m, b].item() * mask[m, b].item() for m in range(3) for b in range(16)) / 16
    assert made.update(batch)["critic_loss"] == pytest.approx(expected, rel=1e-12)


def test_predict_value_tells_how_far_critics_differ():
    dataset = testing.tiny_dataset(discrete=True)
    made = testing.maker(DQN, n_critics=3, q_function="qr")().fit(dataset, 2)
    x, action = dataset.columns["observation"][:4], dataset.columns["action"][:4]
    mean, std = made.predict_value(x, action, with_std=True)
    each = np.array(
        [[made.fit_.nets().critic(torch.from_numpy(x[b : b + 1]))[m, 0, action[b]].item() for m in range(3)] for b in range(4)]
    )
    np.testing.assert_allclose(mean, each.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std, each.std(1), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(made.predict_value(x, action), mean)
    alone = testing.maker(DQN)().fit(dataset, 1)
    assert (alone.predict_value(x, action, with_std=True)[1] == 0).all()


# ---- in algorithms

SMALL = {
    "qr": {"name": "qr", "n_quantiles": 4},
    "iqn": {"name": "iqn", "n_quantiles": 4, "n_target_quantiles": 3, "n_greedy_quantiles": 3, "embed_size": 4},
    "fqf": {"name": "fqf", "n_quantiles": 4, "embed_size": 4, "proposal_learning_rate": 1e-3},
}
QUICK = {
    (DQN, "qr"): {"n_critics": 2, "share_encoder": True},
    (TD3, "iqn"): {"bootstrap": True, "n_critics": 3},
    (DQN, "fqf"): {"n_critics": 2, "bootstrap": True},
}
SLOW = {
    (TD3, "qr"): {"bootstrap": True},
    (DQN, "iqn"): {},
    (TD3, "fqf"): {"n_critics": 1, "share_encoder": True},
    (TD3, "mean"): {"n_critics": 3, "bootstrap": True, "share_encoder": True},
    (DQN, "mean"): {"n_critics": 3, "bootstrap": True},
}
CELLS = [(c, s, n) for cells, n in ((QUICK, 12), (SLOW, 100)) for c, s in cells.items()]


@pytest.mark.parametrize(
    ("cell", "settings", "n_steps"),
    [pytest.param(*cell, id=f"{cell[0][0].__name__}-{cell[0][1]}", marks=[pytest.mark.slow] * (cell[2] == 100)) for cell in CELLS],
)
def test_algorithms_keep_the_contract(cell, settings, n_steps):
    algorithm, name = cell
    make = testing.maker(algorithm, **{"q_function": SMALL.get(name, name), **settings})
    testing.check_row_equals_single_run(make, n_steps=n_steps)
    testing.check_update_reads_no_value(make)
    testing.check_resumes_bit_for_bit(make)


@pytest.mark.parametrize("name", ["iqn", pytest.param("qr", marks=pytest.mark.slow), pytest.param("fqf", marks=pytest.mark.slow)])
def test_an_exported_policy_acts_by_expectation(name, tmp_path):
    dataset = testing.tiny_dataset(discrete=True)
    made = testing.maker(DQN, q_function=SMALL[name], n_critics=2)().fit(dataset, 3)
    made.save_policy(tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"), providers=["CPUExecutionProvider"])
    for n in (1, 7, 64):
        x = 30 * dataset.columns["observation"][:n]  # far apart, or a policy so young may act alike everywhere
        (action,) = session.run(["action"], {"observation": x})
        np.testing.assert_array_equal(action, made.predict(x))
    assert len(set(action.tolist())) > 1


def test_quantiles_learn_the_spread_of_a_return():
    """Rewards of 0 or 10 by chance, and every episode ends at once: half of the quantiles are 0, half 10, Q is 5."""
    rng = np.random.default_rng(0)
    n = 2_000
    reward = np.where(rng.uniform(size=n) < 0.5, 0.0, 10.0).astype(np.float32)
    dataset = Dataset.from_arrays(
        np.zeros((n, 1), np.float32), np.zeros(n, np.int64), reward, np.ones(n, bool), np.zeros(n, bool), name="coins"
    )
    made = DQN(q_function={"name": "qr", "n_quantiles": 4}, encoder={"hidden_units": (8,)}, learning_rate=3e-2, batch_size=64)
    made.fit(dataset, 600)
    quantiles_ = made.fit_.nets().critic.distribution(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64)).atoms[0, :, 0].tolist()
    assert quantiles_ == pytest.approx([0, 0, 10, 10], abs=1.5)
    assert made.predict_value(np.zeros((1, 1), np.float32), np.zeros(1, np.int64))[0] == pytest.approx(5, abs=1)


# ---- settings


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"q_function": "iqm"}, "iqn"),
        ({"q_function": {"name": "qr", "n_quantiles": 0}}, "n_quantiles"),
        ({"q_function": {"name": "fqf", "n_quantiles": 1}}, "n_quantiles"),
        ({"q_function": {"name": "qr", "quantiles": 8}}, "n_quantiles"),
        ({"bootstrap": True}, "n_critics"),
        ({"tau": 0.0}, "tau"),
        ({"target_update_interval": 0}, "target_update_interval"),
        ({"n_critics": 0}, "n_critics"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_in_one_sentence(settings, complaint):
    with pytest.raises(ConfigError, match=complaint) as error:
        DQN(**settings).check_settings()
    assert len(str(error.value)) < 250
    assert "\n" not in str(error.value)


def test_stacks_of_bootstrapped_critics_have_masks_of_their_own():
    dataset = testing.tiny_dataset(discrete=True)
    stack = Stack(testing.maker(DQN, n_critics=2, bootstrap=True)(), (3, 4)).fit(dataset, 0)
    batch = stack.fit_.sampler(dataset).sample(0)
    first, second = (bootstrap_mask(fold(root_key(seed), "bootstrap"), batch.index[0], 2, torch.float32) for seed in (3, 4))
    kept = stack.fit_.learner._kept_by_members(batch.index[:1].expand(2, -1))
    assert torch.equal(kept, torch.stack((first, second)))
    assert not torch.equal(first, second)
