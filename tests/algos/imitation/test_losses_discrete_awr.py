"""DiscreteAWR's losses against loops over single samples, and how its policy acts."""

import math

import numpy as np
import pytest
import torch

from d3ray.algos.imitation.discrete_awr import DiscreteAWR
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.dataset import Dataset

from .. import slow_losses as slow
from ..loss_values import as_tensors, evaluate, networks, prepared
from .test_losses_awr import episode_of

FAST = {"actor_optimizer": "adam", "actor_learning_rate": 1e-2, "value_optimizer": "adam", "value_learning_rate": 1e-2}


def returned(run, kind, batch, horizon, scale):
    """R of every sample, over the steps that its episode has left."""
    data, found = tiny_dataset(discrete=True), []
    for index in batch.index.tolist():
        rewards, seen, terminated = episode_of(data, index)
        n = min(len(rewards), horizon + 1)
        value = lambda state: scale * run(kind, "value", state)[0]  # noqa: E731
        found.append(slow.lambda_return(value, rewards[:n], seen[: n + 1], terminated and n == len(rewards), 0.99, 0.95))
    return np.array(found)


def test_the_value_goes_towards_returns_of_the_last_phase():
    made, learner, batch = prepared(DiscreteAWR, horizon=4, value_scale=2.0)
    run = networks(learner)
    values = [2 * run("live", "value", seen)[0] for seen in batch.observation.numpy()]
    expected = ((returned(run, "target", batch, 4, 2.0) - values) / 2) ** 2
    np.testing.assert_allclose(evaluate(made, learner, batch, made.value_loss)[0], expected, rtol=1e-10)


@pytest.mark.parametrize("normalize", [True, False])
def test_the_actor_is_a_classification_weighted_by_advantages(normalize):
    settings = {"normalize_advantages": normalize, "beta": 0.5, "max_weight": 1.5, "value_scale": 2.0}
    made, learner, batch = prepared(DiscreteAWR, horizon=4, **settings, **FAST)
    run = networks(learner)
    values = [2 * run("live", "value", seen)[0] for seen in batch.observation.numpy()]
    weights = slow.weights(torch.from_numpy(returned(run, "live", batch, 4, 2.0) - values), 0.5, 1.5, normalize)
    assert weights.min() < 1.5 == weights.max()
    expected = [
        -float(weight * slow.log_share(as_tensors(run), seen, action))
        for weight, seen, action in zip(weights, batch.observation, batch.action, strict=True)
    ]
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], expected, rtol=1e-10)


def test_the_likeliest_action_acts_and_draws_are_of_the_softmax():
    data = tiny_dataset(discrete=True)
    made = maker(DiscreteAWR, **FAST)(dtype="float64", horizon=2).fit(data, 200, 200)
    seen = data.columns["observation"][:1]
    logits = networks(made.fit_.learner)("live", "policy", seen[0].astype(float))
    shares = np.exp(logits - math.log(np.exp(logits).sum()))
    assert np.ptp(shares) > 0.05  # or equal shares would pass too
    assert made.predict(seen).tolist() == [int(np.argmax(logits))]
    drawn = np.bincount(made.sample_action(np.repeat(seen, 20_000, 0)), minlength=3) / 20_000
    np.testing.assert_allclose(drawn, shares, atol=0.015)
    np.testing.assert_allclose(made.policy().log_prob(np.repeat(seen, 3, 0), np.arange(3)), np.log(shares), rtol=1e-6)
    value = 100 * networks(made.fit_.learner)("live", "value", seen[0].astype(float))[0]
    np.testing.assert_allclose(made.predict_value(seen, np.zeros(1, int)), value, rtol=1e-6)


@pytest.mark.long
def test_good_actions_are_taken_up():
    """Three actions in equal shares, rewarded with -1, 0 and 1: a policy that cloned them would have shares of a third."""
    action, ends = np.arange(600) % 3, np.ones(600, bool)
    data = Dataset.from_arrays(np.ones((600, 1), "f4"), action, action - 1.0, ends, ~ends, name="three")
    made = DiscreteAWR(n_value_updates=50, n_actor_updates=150, value_scale=1.0, beta=0.3, horizon=1, **FAST).fit(data, 400, 400)
    one = np.ones((3, 1), "f4")
    assert made.predict(one).tolist() == [2] * 3
    assert np.exp(made.policy().log_prob(one, np.arange(3)))[2] > 0.9
    np.testing.assert_allclose(made.predict_value(one, np.arange(3)), 0, atol=0.1)


def test_it_learns_online_and_on_images():
    online = maker(DiscreteAWR, horizon=4)(seed=1).fit_online("CartPole-v1", n_steps=80, n_steps_per_epoch=80, show_progress=False)
    assert online.step > 0
    rng = np.random.default_rng(0)
    seen = rng.integers(0, 256, (30, 2, 12, 12)).astype("u1")
    images = Dataset.from_arrays(seen, rng.integers(0, 3, 30), rng.normal(size=30).astype("f4"), np.arange(30) % 10 == 9)
    pixel = {"name": "pixel", "filters": [[4, 4, 2]], "feature_size": 8}
    made = DiscreteAWR(actor_encoder=pixel, value_encoder=pixel, batch_size=8, horizon=3, observation_scaler="pixel").fit(
        images, 2, 2
    )
    assert made.predict(seen[:4]).shape == (4,)


def test_presets_are_awrs_and_lunar_landers():
    paper = DiscreteAWR.from_preset("paper").check_settings()
    assert (paper.actor_learning_rate, paper.value_learning_rate, paper.actor_encoder.hidden_units) == (5e-4, 5e-3, (128, 64))
    manual = DiscreteAWR.from_preset("d3rlpy-2020").check_settings()
    assert (manual.actor_learning_rate, manual.value_learning_rate, manual.beta, manual.normalize_advantages) == (
        5e-5,
        1e-4,
        1.0,
        False,
    )
