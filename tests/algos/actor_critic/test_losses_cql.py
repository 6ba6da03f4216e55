"""CQL's gap, goals and dual variable against loops in NumPy."""

import math

import numpy as np
import pytest
import torch

from d3ray.algos.actor_critic.cal_ql import CalQL
from d3ray.algos.actor_critic.cql import CQL
from d3ray.algos.losses.prices import price_loss
from d3ray.algos.losses.sampled_actions import log_sum_exp

from ..loss_values import evaluate, networks, prepared


def draws(learner, nets, observation, name, shape):
    """Actions and log densities of a squashed normal, [N, B, A] and [N, B]: tanh's slope written out, without a softplus."""
    with torch.no_grad():
        policy = learner.modules["policy"](observation)
        mean, log_std = policy.mean.numpy(), policy.log_std.numpy()
    noise = nets.noise(name, shape).numpy()
    raw = mean + np.exp(log_std) * noise
    density = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - np.log(1 - np.tanh(raw) ** 2)
    return np.tanh(raw), density.sum(-1)


def gaps(learner, batch, nets, n, importance_sampling):
    run, shape = networks(learner), (n, *batch.action.shape)
    anywhere = 2 * nets.uniform("action anywhere", shape).numpy() - 1
    parts = [(anywhere, np.full(shape[:2], shape[-1] * math.log(0.5)))]
    parts.append(draws(learner, nets, batch.observation, "action here", shape))
    parts.append(draws(learner, nets, batch.next_observation, "action there", shape))
    found = np.zeros((2, shape[1]))
    for member in range(2):
        for b in range(shape[1]):
            seen = batch.observation[b].numpy()

            def value(action, seen=seen, member=member):
                return run("live", "critic", np.concatenate([seen, action]), member)[0]

            data = value(batch.action[b].numpy())
            total = 0.0 if importance_sampling else math.exp(data)
            for actions, densities in parts:
                for k in range(n):
                    total += math.exp(value(actions[k, b]) - (densities[k, b] if importance_sampling else 0.0))
            found[member, b] = math.log(total) - data
    return found


@pytest.mark.parametrize("importance_sampling", [True, False])
def test_the_gap_is_a_sum_over_three_kinds_of_actions(importance_sampling):
    made, learner, batch = prepared(CQL, n_action_samples=2, importance_sampling=importance_sampling, batch_size=12)
    batch = small(batch)
    nets = evaluate(made, learner, batch, made.critic_loss)[2]
    expected = gaps(learner, batch, nets, 2, importance_sampling)
    np.testing.assert_allclose(made.gap(nets, batch).detach().numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_terms_that_no_sum_shows_have_no_gradient(dtype):
    x = torch.tensor([[1.0, -50.0, -94.0, -300.0], [-900.0, -901.0, -2_000.0, -902.0]], dtype=dtype, requires_grad=True)
    found, plain = log_sum_exp(x, 1), x.logsumexp(1)
    np.testing.assert_array_equal(found.detach(), plain.detach())
    mine, theirs = (torch.autograd.grad(value.sum(), x)[0] for value in (found, plain))
    if dtype == torch.float32:
        assert 0 < theirs[0, 2] < torch.finfo(dtype).tiny  # subnormal: what this is for
    np.testing.assert_array_equal(mine, torch.where(theirs < math.exp(-60), 0.0, theirs))


def test_far_values_leave_the_gap_no_subnormal_gradient():
    made, learner, batch = prepared(CQL, n_action_samples=4, batch_size=12)
    nets, kept = evaluate(made, learner, batch, made.critic_loss)[2], []

    def far(values, _):
        kept.append(1e4 * values)
        return kept[0]

    made.counted = far
    gap = made.gap(nets, batch)
    (gradient,) = torch.autograd.grad(gap.sum(), kept[0])
    assert float(gradient.abs()[gradient != 0].min()) >= math.exp(-61)
    assert (gradient == 0).any()


def small(batch, n=8):
    """Its first transitions: the loops are slow."""
    parts = {
        name: getattr(batch, name)[:n] for name in ("observation", "action", "reward", "next_observation", "discount", "index")
    }
    return type(batch)(**parts)


def test_members_learn_values_from_their_own_transitions_and_the_gap_from_all():
    made, learner, batch = prepared(CQL, bootstrap=True, n_critics=3, n_action_samples=2, conservative_weight=0.7)
    masks = learner._kept_by_members(batch.index)
    assert 0 < masks.mean() < 1
    loss, _, nets = evaluate(made, learner, batch.with_extra(kept=masks), made.critic_loss)
    gap = made.gap(nets, batch).detach()
    td = nets.critic.td_loss(batch.observation, batch.action, made.goal(nets, batch, learner._h))[0].detach()
    expected = [
        sum(float(td[i, b]) * float(masks[i, b]) + 0.7 * float(gap[i, b]) for i in range(3)) for b in range(len(batch.index))
    ]
    np.testing.assert_allclose(loss, expected, rtol=1e-12)


def test_a_learnt_weight_grows_while_the_gap_is_above_its_threshold():
    for threshold, sign in ((-50.0, 1), (50.0, -1)):
        made, learner, batch = prepared(CQL, learn_alpha=True, alpha_threshold=threshold, initial_alpha=2.0, n_action_samples=2)
        before = learner.state()["live/alpha/log"].item()
        learner.update(batch)
        assert sign * (learner.state()["live/alpha/log"].item() - before) > 0
        nets = evaluate(made, learner, batch, made.critic_loss)[2]
        gap, weight = made.gap(nets, batch).detach(), made.config_.conservative_weight
        alpha = 2.0 * math.exp(learner.state()["live/alpha/log"].item())
        loss, metrics, _ = evaluate(made, learner, batch, made.critic_loss)
        td = nets.critic.td_loss(batch.observation, batch.action, made.goal(nets, batch, learner._h))[0].detach()
        excess = weight * (gap - threshold)
        np.testing.assert_allclose(loss, (td + alpha * excess).sum(0) - alpha * excess.mean(0), rtol=1e-9)
        assert metrics["alpha"] == pytest.approx(alpha)


@pytest.mark.parametrize("algorithm", [CQL, CalQL])
def test_alpha_stops_beyond_its_bound_and_comes_back(algorithm):
    settings = {"learn_alpha": True, "n_action_samples": 2, "alpha_optimizer": "sgd", "alpha_learning_rate": 1e-12}
    _, learner, batch = prepared(algorithm, alpha_threshold=-1e4, **settings)
    with torch.no_grad():
        learner.live["alpha"]["log"].fill_(14.0)  # α = 1.2e6
    learner.update(batch)
    assert learner.live["alpha"]["log"].item() == 14.0  # the gap is far above κ, and α is beyond its bound already
    assert learner.read_metrics()[0]["alpha"] == pytest.approx(1e6)  # what the critics see
    learner.set_hyper("alpha_threshold", [1e4])
    for _ in range(3):
        learner.update(batch)
    assert 13.5 < learner.live["alpha"]["log"].item() < 13.9  # a step is 1e-12 · α ω (κ - G), some 0.06 and less each time


def test_a_price_moves_within_its_bounds_and_back_into_them():
    for log, excess, moves in ((0.0, 1.0, 1), (0.0, -1.0, 1), (3.1, 1.0, 0), (3.1, -1.0, 1), (-2.1, -1.0, 0), (-2.1, 1.0, 1)):
        price = torch.tensor(log, dtype=torch.float64, requires_grad=True)
        off = torch.tensor([excess - 0.5, excess + 0.5], dtype=torch.float64)
        loss = price_loss(price.exp(), off, math.exp(-2.0), math.exp(3.0))
        (gradient,) = torch.autograd.grad(loss.mean(), [price])
        assert gradient.item() == pytest.approx(-moves * math.exp(log) * excess)


@pytest.mark.parametrize("backup", ["sampled", "mode", "soft", "max"])
def test_goals(backup):
    made, learner, batch = prepared(CQL, backup=backup, n_action_samples=3, learn_temperature=False, initial_temperature=0.4)
    run = networks(learner)
    nets = evaluate(made, learner, batch, made.critic_loss)[2]
    shape = (3, *batch.action.shape) if backup == "max" else (1, *batch.action.shape)
    if backup == "max":
        actions, _ = draws(learner, nets, batch.next_observation, "next action", shape)
    else:
        actions, density = draws(learner, nets, batch.next_observation, "next action", batch.action.shape)
        actions, density = actions[None], density[None]
    if backup == "mode":
        with torch.no_grad():
            actions = learner.modules["policy"](batch.next_observation).mean.tanh().numpy()[None]
    expected = []
    for b in range(len(batch.reward)):
        pairs = [np.concatenate([batch.next_observation[b].numpy(), actions[k, b]]) for k in range(shape[0])]
        following = max(min(run("target", "critic", pair, m)[0] for m in (0, 1)) for pair in pairs)
        if backup == "soft":
            following -= 0.4 * density[0, b]
        expected.append(batch.reward[b].item() + batch.discount[b].item() * following)
    np.testing.assert_allclose(made.goal(nets, batch, learner._h).mean.numpy(), expected, rtol=1e-9)


def test_the_actor_clones_at_first():
    made, learner, batch = prepared(CQL, cloning_steps=10)
    assert [made.schedule(step) for step in (9, 10)] == [("critic", "clone", "targets"), ("critic", "actor", "targets")]
    loss, metrics, nets = evaluate(made, learner, batch, made.cloning_loss)
    _, drawn = draws(learner, nets, batch.observation, "action", batch.action.shape)
    with torch.no_grad():
        policy = learner.modules["policy"](batch.observation)
    raw = np.arctanh(batch.action.numpy().clip(-1 + 1e-6, 1 - 1e-6))
    standard = (raw - policy.mean.numpy()) / np.exp(policy.log_std.numpy())
    of_data = (-0.5 * standard**2 - policy.log_std.numpy() - 0.5 * math.log(2 * math.pi) - np.log(1 - np.tanh(raw) ** 2)).sum(-1)
    alpha = metrics["temperature"].item()
    np.testing.assert_allclose(loss, alpha * drawn - of_data - alpha * (drawn - 3), rtol=1e-8)
