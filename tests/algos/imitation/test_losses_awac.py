"""Losses of AWAC and CRR against loops in NumPy."""

import math

import numpy as np
import pytest

from d3ray.algos.imitation.awac import AWAC
from d3ray.algos.imitation.crr import CRR

from ..loss_values import evaluate, networks, prepared


def policy_at(run, kind, seen, log_std=None):
    """Mean and deviation of a normal policy at one observation; of a policy without a deviation of its own that of `log_std`."""
    output = run(kind, "policy", seen)
    if log_std is None:
        return np.tanh(output[:3]), np.exp(np.clip(output[3:], -20, 2))
    return np.tanh(output), np.exp(log_std)


def spanned(learner, low, high):
    """AWAC's deviation: a parameter in a sigmoid that spans the bounds."""
    parameter = learner.state()["live/policy/log_std"].numpy()
    return low + (high - low) / (1 + np.exp(-parameter))


def critics(run, kind, seen, action, members):
    return [run(kind, "critic", np.concatenate([seen, action]), m if members > 1 else None)[0] for m in range(members)]


def log_density(action, mean, std):
    return sum(
        -0.5 * ((a - m) / s) ** 2 - math.log(s) - 0.5 * math.log(2 * math.pi) for a, m, s in zip(action, mean, std, strict=True)
    )


def noise_of(made, learner, batch, loss, name, shape):
    return evaluate(made, learner, batch, loss)[2].noise(name, shape).numpy()


@pytest.mark.parametrize("settings", [{"n_action_samples": 3}, {"weighting": "exp", "lam": 0.5, "max_weight": 1.0}])
def test_awac_weighs_the_data_by_advantages(settings):
    made, learner, batch = prepared(AWAC, **settings)
    run, bounds = networks(learner), spanned(learner, -6, 0)
    n, lam = settings.get("n_action_samples", 1), settings.get("lam", 1.0)
    noise = noise_of(made, learner, batch, made.actor_loss, "action", (n, *batch.action.shape))
    advantages, log_probs = [], []
    for i, seen in enumerate(batch.observation.numpy()):
        mean, std = policy_at(run, "live", seen, bounds)
        own = [min(critics(run, "live", seen, np.clip(mean + std * noise[k, i], -1, 1), 2)) for k in range(n)]
        action = batch.action[i].numpy()
        advantages.append(min(critics(run, "live", seen, action, 2)) - sum(own) / n)
        log_probs.append(log_density(action, mean, std))
    weights = np.exp(np.array(advantages) / lam)
    if "weighting" in settings:
        assert weights.min() < 1 < weights.max()  # or the ceiling is not tested
        weights = np.minimum(weights, 1.0)
    else:
        weights = weights / weights.sum() * len(weights)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], -weights * log_probs, rtol=1e-10)


@pytest.mark.parametrize("kind", ["mean", "max"])
@pytest.mark.parametrize("weight", [{"weight_type": "binary"}, {"beta": 0.3, "max_weight": 1.05}])
def test_crr_clones_what_is_better_than_the_policy(kind, weight):
    made, learner, batch = prepared(CRR, n_critics=2, n_action_samples=3, advantage_type=kind, **weight)
    run = networks(learner)
    noise = noise_of(made, learner, batch, made.actor_loss, "action", (3, *batch.action.shape))
    weights, expected = [], []
    for i, seen in enumerate(batch.observation.numpy()):
        mean, std = policy_at(run, "live", seen)
        own = [np.mean(critics(run, "live", seen, np.clip(mean + std * noise[k, i], -1, 1), 2)) for k in range(3)]
        action = batch.action[i].numpy()
        advantage = np.mean(critics(run, "live", seen, action, 2)) - (np.mean(own) if kind == "mean" else max(own))
        weights.append(float(advantage > 0) if "weight_type" in weight else min(math.exp(advantage / 0.3), 1.05))
        expected.append(-weights[-1] * log_density(action, mean, std))
    assert len(set(weights)) > 1
    assert max(weights) == (1.0 if "weight_type" in weight else 1.05)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("algorithm", [AWAC, CRR])
def test_the_critics_goal_is_a_drawn_action_of_the_policy(algorithm):
    made, learner, batch = prepared(algorithm, n_critics=2, td_steps=2)
    run, target = networks(learner), "target" if algorithm is CRR else "live"
    noise = noise_of(made, learner, batch, made.critic_loss, "next action", batch.action.shape)
    expected = []
    for i, seen in enumerate(batch.next_observation.numpy()):
        mean, std = policy_at(run, target, seen, None if algorithm is CRR else spanned(learner, -6, 0))
        following = min(critics(run, "target", seen, np.clip(mean + std * noise[i], -1, 1), 2))
        goal = batch.reward[i].item() + batch.discount[i].item() * following
        mine = critics(run, "live", batch.observation[i].numpy(), batch.action[i].numpy(), 2)
        expected.append(sum((value - goal) ** 2 for value in mine))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-10)


def test_awacs_policy_waits_for_its_critics():
    """Delayed steps fall on steps d, 2 d, …, as those of TD3; targets move all the same."""
    made, _, _ = prepared(AWAC, update_actor_interval=3)
    both = ("critic", "actor", "targets")
    assert [made.schedule(step) for step in range(6)] == [("critic", "targets"), ("critic", "targets"), both] * 2
    assert prepared(AWAC)[0].schedule(0) == both
