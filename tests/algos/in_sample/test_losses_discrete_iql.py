"""DiscreteIQL's losses against loops in NumPy, how its policy acts, and a choice that is known by hand."""

import math

import numpy as np
import pytest
import torch

from d3ray.algos.in_sample.discrete_iql import DiscreteIQL
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.dataset import Dataset

from ..loss_values import evaluate, networks, prepared

SHARP = {"actor_optimizer": {"name": "adam"}, "actor_learning_rate": 1e-2}


def advantages(run, batch):
    """min_i Q̂_i(s, a) - V(s), sample by sample."""
    return [
        min(run("target", "critic", seen, m)[a] for m in (0, 1)) - run("live", "value", seen)[0]
        for seen, a in zip(batch.observation.numpy(), batch.action.tolist(), strict=True)
    ]


def log_softmax(logits):
    return logits - math.log(sum(math.exp(x) for x in logits))


def test_the_value_is_an_expectile_of_the_target_critic_at_the_datas_action():
    made, learner, batch = prepared(DiscreteIQL, expectile=0.8)
    expected = [(0.8 if u > 0 else 0.2) * u * u for u in advantages(networks(learner), batch)]
    np.testing.assert_allclose(evaluate(made, learner, batch, made.value_loss)[0], expected, rtol=1e-10)


def test_the_actor_is_a_classification_weighted_by_advantages():
    made, learner, batch = prepared(DiscreteIQL, weight_temp=2.0, max_weight=0.9, **SHARP)
    run, expected, weights = networks(learner), [], []
    for seen, a, u in zip(batch.observation.numpy(), batch.action.tolist(), advantages(run, batch), strict=True):
        weights.append(min(math.exp(2 * u), 0.9))
        expected.append(-weights[-1] * log_softmax(run("live", "policy", seen))[a])
    assert min(weights) < 0.9 == max(weights)  # or the ceiling is not tested
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], expected, rtol=1e-10)


def test_the_critic_goes_towards_the_next_value():
    made, learner, batch = prepared(DiscreteIQL, td_steps=2)
    run, expected = networks(learner), []
    for i, a in enumerate(batch.action.tolist()):
        goal = batch.reward[i].item() + batch.discount[i].item() * run("live", "value", batch.next_observation[i].numpy())[0]
        expected.append(sum((run("live", "critic", batch.observation[i].numpy(), m)[a] - goal) ** 2 for m in (0, 1)))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-10)


def test_the_likeliest_action_acts_and_draws_are_of_the_softmax():
    data = tiny_dataset(discrete=True)
    made = maker(DiscreteIQL, **SHARP)(dtype="float64").fit(data, 60, 60)
    seen = data.columns["observation"][:1]
    logits = networks(made.fit_.learner)("live", "policy", seen[0].astype(float))
    shares = np.exp(log_softmax(logits))
    assert np.ptp(shares) > 0.1
    assert made.predict(seen).tolist() == [int(np.argmax(logits))]
    drawn = np.bincount(made.sample_action(np.repeat(seen, 20_000, 0)), minlength=3) / 20_000
    np.testing.assert_allclose(drawn, shares, atol=0.015)
    found = made.policy().log_prob(np.repeat(seen, 3, 0), np.arange(3))
    np.testing.assert_allclose(found, np.log(shares), rtol=1e-6)
    values = [
        np.mean([networks(made.fit_.learner)("live", "critic", seen[0].astype(float), m)[a] for m in (0, 1)]) for a in range(3)
    ]
    np.testing.assert_allclose(made.predict_value(np.repeat(seen, 3, 0), np.arange(3)), values, rtol=1e-6)


def test_an_action_that_the_data_lack_is_never_believed_in():
    """Actions 0 and 1 of three are rewarded with -1 and 1, one step an episode: V = 2ε - 1 = 0.4 at ε = 0.7, as IQL's coin."""
    action = np.arange(400) % 2
    ends = np.ones(400, bool)
    spec = tiny_dataset(discrete=True, observation_size=1).spec
    coin = Dataset.from_arrays(np.ones((400, 1), "f4"), action, 2.0 * action - 1, ends, ~ends, name="coin", spec=spec)
    small = {key: {"hidden_units": [16]} for key in ("actor_encoder", "critic_encoder", "value_encoder")}
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "value_learning_rate"), 1e-2)
    made = DiscreteIQL(**small, **rates, batch_size=128, tau=0.05, seed=1, actor_optimizer="adam").fit(coin, 400, 400)
    one = np.ones((3, 1), "f4")
    with torch.no_grad():
        nets = made.fit_.nets()
        assert float(nets.value(torch.ones(1, 1))) == pytest.approx(0.4, abs=0.1)
        shares = nets.policy(torch.ones(1, 1)).probs[0].numpy()
    np.testing.assert_allclose(made.predict_value(one, np.arange(3))[:2], [-1, 1], atol=0.05)
    assert made.predict(one).tolist() == [1] * 3
    assert shares[1] > 0.85
    assert shares[2] < 0.02


@pytest.mark.parametrize("settings", [
    {"q_function": {"name": "categorical", "v_min": -5.0, "v_max": 5.0}},
    {"q_function": {"name": "qr", "dueling": True, "stream_units": 8}, "sampler": "prioritized"},
    {"q_function": {"name": "fqf"}, "n_critics": 3, "share_encoder": True, "bootstrap": True},
    {"q_function": {"name": "mean", "noisy": 0.5}},
])  # fmt: skip
def test_every_head_and_ensemble_goes_with_it(settings):
    data = tiny_dataset(discrete=True)
    made = maker(DiscreteIQL, **settings)().fit(data, 4, 4)
    assert np.isfinite(made.predict_value(data.columns["observation"][:5], data.columns["action"][:5])).all()


def test_it_learns_online_and_on_images():
    online = maker(DiscreteIQL)().fit_online("CartPole-v1", n_steps=40, n_steps_per_epoch=40, show_progress=False)
    assert online.step > 0
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 256, (30, 2, 12, 12)).astype("u1")
    images = Dataset.from_arrays(seen, rng.integers(0, 3, 30), rng.normal(size=30).astype("f4"), np.arange(30) % 10 == 9)
    pixel = {"name": "pixel", "filters": [[4, 4, 2]], "feature_size": 8}
    encoders = dict.fromkeys(("actor_encoder", "critic_encoder", "value_encoder"), pixel)
    made = DiscreteIQL(**encoders, batch_size=8, observation_scaler="pixel").fit(images, 2, 2)
    assert made.predict(seen[:4]).shape == (4,)
