"""IQL's losses against loops in NumPy, and a coin whose values are known by hand."""

import math

import numpy as np
import pytest
import torch

from d3ray.algos.in_sample.iql import IQL
from d3ray.algos.stack import Stack
from d3ray.data.dataset import Dataset

from ..loss_values import evaluate, networks, prepared


def advantages(run, batch):
    """min_i Q̂_i(s, a) - V(s), sample by sample."""
    found = []
    for seen, action in zip(batch.observation.numpy(), batch.action.numpy(), strict=True):
        least = min(run("target", "critic", np.concatenate([seen, action]), m)[0] for m in (0, 1))
        found.append(least - run("live", "value", seen)[0])
    return found


def test_the_value_is_an_expectile_of_the_target_critic():
    made, learner, batch = prepared(IQL, expectile=0.8)
    expected = [(0.8 if u > 0 else 0.2) * u * u for u in advantages(networks(learner), batch)]
    np.testing.assert_allclose(evaluate(made, learner, batch, made.value_loss)[0], expected, rtol=1e-11)


@pytest.mark.parametrize(
    ("ceiling", "settings"), [(1.0, {}), (0.6, {"state_dependent_std": True}), (1.0, {"policy_type": "deterministic"})]
)
def test_the_actor_is_a_regression_weighted_by_advantages(ceiling, settings):
    made, learner, batch = prepared(IQL, weight_temp=2.0, max_weight=ceiling, log_std_bounds=(-0.05, 0.05), **settings)
    run, state = networks(learner), learner.state()
    expected, weights = [], []
    for i, u in enumerate(advantages(run, batch)):
        weights.append(min(math.exp(2 * u), ceiling))
        output = run("live", "policy", batch.observation[i].numpy())
        distance = np.tanh(output[:3]) - batch.action[i].numpy()
        if "policy_type" in settings:
            log_prob = -(distance**2).sum()
        else:
            log_std = np.clip(output[3:] if settings else state["live/policy/log_std"].numpy(), -0.05, 0.05)
            log_prob = sum(
                -0.5 * (d / math.exp(s)) ** 2 - s - 0.5 * math.log(2 * math.pi) for d, s in zip(distance, log_std, strict=True)
            )
        expected.append(-weights[-1] * log_prob)
    assert ceiling in weights  # or the ceiling is not tested
    assert min(weights) < ceiling
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], expected, rtol=1e-10)


def test_the_critic_goes_towards_the_next_value():
    made, learner, batch = prepared(IQL, td_steps=2)
    run, expected = networks(learner), []
    for i in range(len(batch.reward)):
        goal = batch.reward[i].item() + batch.discount[i].item() * run("live", "value", batch.next_observation[i].numpy())[0]
        pair = np.concatenate([batch.observation[i].numpy(), batch.action[i].numpy()])
        expected.append(sum((run("live", "critic", pair, m)[0] - goal) ** 2 for m in (0, 1)))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-11)


def test_actor_and_critic_see_this_steps_value_and_the_last_steps_target(monkeypatch):
    """Choice 1: the order of the authors' code, seen through what each loss is given."""
    _, learner, batch = prepared(IQL)
    seen = {}
    original = learner.minimise

    def spy(loss, network, given):
        state = learner.state()
        seen[loss.__name__] = {part: state[f"{part}/head.weight"].clone() for part in ("live/value", "target/critic")}
        original(loss, network, given)

    monkeypatch.setattr(learner, "minimise", spy)
    before = learner.state()
    learner.update(batch)
    assert list(seen) == ["value_loss", "actor_loss", "critic_loss"]
    assert torch.equal(seen["value_loss"]["live/value"], before["live/value/head.weight"])
    for loss in ("actor_loss", "critic_loss"):
        assert torch.equal(seen[loss]["live/value"], learner.state()["live/value/head.weight"])
        assert not torch.equal(seen[loss]["live/value"], before["live/value/head.weight"])
        assert torch.equal(seen[loss]["target/critic"], before["target/critic/head.weight"])


@pytest.mark.parametrize("seeds", [1, 2])
def test_what_losses_share_is_worked_out_once_and_equal(seeds):
    made, learner, batch = prepared(IQL)
    if seeds > 1:
        stack = Stack(IQL(actor_encoder={"hidden_units": [8]}, critic_encoder={"hidden_units": [8]}, batch_size=16), (1, 2))
        from d3ray.algos.testing import tiny_dataset

        dataset = tiny_dataset(discrete=False)
        learner = stack.fit(dataset, n_steps=3).fit_.learner
        made, batch = learner.algorithm, stack.fit_.sampler(dataset).sample(7)
    calls = []
    forward = type(learner.modules["critic"]).forward
    handed = learner.precompute(made.target_value, batch)
    assert handed.extra["target_value"].shape == batch.reward.shape
    assert not handed.extra["target_value"].requires_grad
    for loss, names in ((made.value_loss, ("value",)), (made.actor_loss, ("policy",))):
        plain = learner.gradients(loss, names, batch, learner.address(loss))[0]
        try:
            type(learner.modules["critic"]).forward = lambda *inputs, **named: calls.append(1) or forward(*inputs, **named)
            short = learner.gradients(loss, names, handed, learner.address(loss))[0]
        finally:
            type(learner.modules["critic"]).forward = forward
        for ours, theirs in zip(short, plain, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert not calls


def test_a_coin_has_the_expectile_by_hand():
    """Reward = action = ±1 with equal chance, one step an episode: V = 2ε - 1, which is 0.4 at ε = 0.7; the mean would be 0.

    With β = 3 the policy goes to the better side, a mean above 0.9; cloning would stay at 0.
    """
    action = np.where(np.arange(400) % 2, 1.0, -1.0)[:, None].astype(np.float32)
    ends = np.ones(400, bool)
    coin = Dataset.from_arrays(np.ones((400, 1), np.float32), action, action[:, 0], ends, ~ends, name="coin")
    small, rate = {"hidden_units": [16]}, 1e-2
    iql = IQL(
        actor_encoder=small, critic_encoder=small, value_encoder=small, batch_size=128, tau=0.05, seed=1,
        actor_learning_rate=rate, critic_learning_rate=rate, value_learning_rate=rate, actor_optimizer="adam",
    )  # fmt: skip
    iql.fit(coin, n_steps=400, n_steps_per_epoch=400)
    with torch.no_grad():
        assert float(iql.fit_.nets().value(torch.ones(1, 1))) == pytest.approx(0.4, abs=0.1)
    np.testing.assert_allclose(iql.predict_value(np.ones((2, 1), np.float32), [[1.0], [-1.0]]), [1, -1], atol=0.05)
    assert iql.predict(np.ones((1, 1), np.float32))[0, 0] > 0.9
