"""DiscreteCRR's losses against loops in NumPy, how its policy acts, and data that are cloned where they are good."""

import math

import numpy as np
import pytest
import torch

from d3ray.algos.imitation.discrete_crr import DiscreteCRR
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.dataset import Dataset

from ..loss_values import evaluate, networks, prepared

FAST = {"actor_learning_rate": 1e-2, "critic_learning_rate": 1e-2}


def softmax(logits):
    exponentials = [math.exp(x) for x in logits]
    return [x / sum(exponentials) for x in exponentials]


def critics(run, kind, seen, members):
    return [run(kind, "critic", seen, m if members > 1 else None) for m in range(members)]


@pytest.mark.parametrize("kind", ["mean", "max"])
@pytest.mark.parametrize("weight", [{"weight_type": "binary"}, {"beta": 0.3, "max_weight": 0.95}])
@pytest.mark.parametrize("members", [1, 2])
def test_the_policy_clones_what_is_better_than_itself(kind, weight, members):
    made, learner, batch = prepared(DiscreteCRR, n_critics=members, advantage_type=kind, **weight, **FAST)
    run, weights, expected = networks(learner), [], []
    for seen, a in zip(batch.observation.numpy(), batch.action.tolist(), strict=True):
        values = [np.mean([member[k] for member in critics(run, "live", seen, members)]) for k in range(3)]
        shares = softmax(run("live", "policy", seen))
        baseline = sum(p * v for p, v in zip(shares, values, strict=True)) if kind == "mean" else max(values)
        advantage = values[a] - baseline
        weights.append(float(advantage >= 0) if "weight_type" in weight else min(math.exp(advantage / 0.3), 0.95))
        expected.append(-weights[-1] * math.log(shares[a]))
    assert len(set(weights)) > 1
    assert max(weights) == (1.0 if "weight_type" in weight else 0.95)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("members", [1, 2])
def test_the_critics_goal_is_an_expectation_over_the_target_policy(members):
    made, learner, batch = prepared(DiscreteCRR, n_critics=members, td_steps=2, tau=0.3, **FAST)
    run, expected = networks(learner), []
    for i, seen in enumerate(batch.next_observation.numpy()):
        shares = softmax(run("target", "policy", seen))
        following = min(sum(p * v for p, v in zip(shares, values, strict=True)) for values in critics(run, "target", seen, members))
        goal = batch.reward[i].item() + batch.discount[i].item() * following
        mine = critics(run, "live", batch.observation[i].numpy(), members)
        expected.append(sum((values[int(batch.action[i])] - goal) ** 2 for values in mine))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["qr", "iqn", "categorical"])
def test_a_distribution_goes_towards_the_mixture_of_its_actions(name):
    made, learner, batch = prepared(DiscreteCRR, q_function=name, **FAST)
    nets = evaluate(made, learner, batch, made.critic_loss)[2]
    every = nets.target.critic.distributions(batch.next_observation)  # [1, 3, N, B]
    mixture = made.following(nets, batch)
    atoms = every.atoms.shape[-2]
    assert mixture.atoms.shape == (3 * atoms, len(batch.reward))
    run = networks(learner)
    for i, seen in enumerate(batch.next_observation.numpy()):
        for k, share in enumerate(softmax(run("target", "policy", seen))):
            part = slice(k * atoms, (k + 1) * atoms)
            own = np.full(atoms, 1 / atoms) if every.weights is None else every.weights[0, k, :, i].detach().numpy()
            np.testing.assert_allclose(mixture.weights[part, i].detach(), share * own, rtol=1e-10, atol=1e-14)
            if name != "iqn":  # which draws other fractions at each pass
                assert torch.equal(mixture.atoms[part, i], every.atoms[0, k, :, i])
    assert np.isfinite(evaluate(made, learner, batch, made.critic_loss)[0]).all()


def test_targets_are_copied_every_nth_step():
    made, _, _ = prepared(DiscreteCRR)
    assert [made.schedule(step) for step in (5, 6)] == [("critic", "actor"), ("critic", "actor", "targets")]


def test_the_likeliest_action_acts_and_draws_are_of_the_softmax():
    data = tiny_dataset(discrete=True)
    rates = {"actor_learning_rate": 1e-2, "critic_learning_rate": 1e-3}
    made = maker(DiscreteCRR, **rates)(dtype="float64").fit(data, 200, 200)
    seen = data.columns["observation"][:1]
    shares = np.array(softmax(networks(made.fit_.learner)("live", "policy", seen[0].astype(float))))
    assert np.ptp(shares) > 0.1
    assert made.predict(seen).tolist() == [int(np.argmax(shares))]
    drawn = np.bincount(made.sample_action(np.repeat(seen, 20_000, 0)), minlength=3) / 20_000
    np.testing.assert_allclose(drawn, shares, atol=0.015)
    np.testing.assert_allclose(made.policy().log_prob(np.repeat(seen, 3, 0), np.arange(3)), np.log(shares), rtol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"weight_type": "binary", "advantage_type": "max"}, {"weight_type": "binary"}])
def test_good_actions_are_taken_up_and_bad_ones_left(settings):
    """Three actions in equal shares, rewarded with -1, 0 and 1, one step an episode."""
    action = np.arange(300) % 3
    ends = np.ones(300, bool)
    data = Dataset.from_arrays(np.ones((300, 1), "f4"), action, action - 1.0, ends, ~ends, name="three")
    small = {"actor_encoder": {"hidden_units": [16]}, "critic_encoder": {"hidden_units": [16]}}
    made = DiscreteCRR(**small, **FAST, **{"beta": 0.2, **settings}, target_update_interval=1, seed=1).fit(data, 300, 300)
    one = np.ones((3, 1), "f4")
    np.testing.assert_allclose(made.predict_value(one, np.arange(3)), [-1, 0, 1], atol=0.1)
    assert made.predict(one).tolist() == [2] * 3
    assert np.exp(made.policy().log_prob(one, np.arange(3)))[2] > 0.9


@pytest.mark.parametrize("settings", [
    {"q_function": {"name": "fqf"}, "n_critics": 3, "share_encoder": True, "bootstrap": True},
    {"q_function": {"name": "qr", "dueling": True, "stream_units": 8}, "sampler": "prioritized", "n_critics": 2},
    {"q_function": {"name": "mean", "noisy": 0.5}},
])  # fmt: skip
def test_every_head_and_ensemble_goes_with_it(settings):
    data = tiny_dataset(discrete=True)
    made = maker(DiscreteCRR, **settings)().fit(data, 9, 9)
    assert np.isfinite(made.predict_value(data.columns["observation"][:5], data.columns["action"][:5])).all()


def test_it_learns_online_and_on_images():
    online = maker(DiscreteCRR)().fit_online("CartPole-v1", n_steps=40, n_steps_per_epoch=40, show_progress=False)
    assert online.step > 0
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 256, (30, 2, 12, 12)).astype("u1")
    images = Dataset.from_arrays(seen, rng.integers(0, 3, 30), rng.normal(size=30).astype("f4"), np.arange(30) % 10 == 9)
    pixel = {"name": "pixel", "filters": [[4, 4, 2]], "feature_size": 8}
    made = DiscreteCRR(actor_encoder=pixel, critic_encoder=pixel, batch_size=8, observation_scaler="pixel").fit(images, 2, 2)
    assert made.predict(seen[:4]).shape == (4,)
