"""Each loss against its equation, written with loops in NumPy over single samples, with targets and noise of its own."""

import numpy as np
import pytest
import torch

from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.actor_critic.td3_plus_bc import TD3PlusBC
from d3ray.algos.imitation.bc import BC
from d3ray.algos.imitation.discrete_bc import DiscreteBC
from d3ray.algos.values.dqn import DQN
from d3ray.data.dataset import Dataset

from .loss_values import evaluate, networks, prepared


def test_bc_is_the_mean_square_over_action_entries():
    made, learner, batch = prepared(BC)
    run = networks(learner)
    expected = [
        np.mean([(np.tanh(run("live", "policy", o.numpy()))[j] - a[j].item()) ** 2 for j in range(3)])
        for o, a in zip(batch.observation, batch.action, strict=True)
    ]
    np.testing.assert_allclose(evaluate(made, learner, batch, made.imitation_loss)[0], expected, rtol=1e-12)


def test_stochastic_bc_is_minus_the_log_likelihood_of_a_normal_distribution():
    made, learner, batch = prepared(BC, policy_type="stochastic", log_std_bounds=(-0.1, 0.1))
    run, expected = networks(learner), []
    for o, a in zip(batch.observation, batch.action, strict=True):
        mean, log_std = np.split(run("live", "policy", o.numpy()), 2)
        std = np.exp(np.clip(log_std, -0.1, 0.1))
        density = np.exp(-0.5 * ((a.numpy() - np.tanh(mean)) / std) ** 2) / (std * np.sqrt(2 * np.pi))
        expected.append(-np.log(density).sum())
    np.testing.assert_allclose(evaluate(made, learner, batch, made.imitation_loss)[0], expected, rtol=1e-11)


def test_stochastic_bc_learns_how_far_actions_spread():
    """Actions 0.2 ± 0.3 in every state: mean 0.2 and deviation 0.3, where d3rlpy's squared error of a draw leads to σ = e⁻⁴."""
    action = (0.2 + np.where(np.arange(300) % 2, 0.3, -0.3))[:, None].astype(np.float32)
    ends = np.ones(300, bool)
    data = Dataset.from_arrays(np.ones((300, 1), np.float32), action, action[:, 0], ends, ~ends, name="spread")
    bc = BC(policy_type="stochastic", encoder={"hidden_units": [8]}, learning_rate=1e-2).fit(data, 300, 300)
    draws = np.concatenate([bc.sample_action(np.ones((500, 1), np.float32)) for _ in range(2)])
    assert draws.mean() == pytest.approx(0.2, abs=0.05)
    assert draws.std() == pytest.approx(0.3, abs=0.05)
    assert bc.predict(np.ones((1, 1), np.float32))[0, 0] == pytest.approx(0.2, abs=0.05)


def test_discrete_bc_is_cross_entropy_and_a_pull_to_uniform():
    made, learner, batch = prepared(DiscreteBC, beta=0.7)
    run = networks(learner)
    expected = []
    for o, a in zip(batch.observation, batch.action, strict=True):
        logits = run("live", "policy", o.numpy())
        log_prob = logits - np.log(np.exp(logits).sum())
        expected.append(-log_prob[int(a)] + 0.7 * np.mean(log_prob**2))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.imitation_loss)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("n_critics", [1, 2])
def test_dqn_is_huber_against_the_least_of_the_targets_at_their_mean_argmax(n_critics):
    made, learner, batch = prepared(DQN, n_critics=n_critics, learning_rate=1e-2)
    run = networks(learner)
    expected, td = [], []
    members = range(n_critics)
    for i in range(len(batch.reward)):
        following = np.array([run("target", "critic", batch.next_observation[i].numpy(), m) for m in members])
        best = int(np.argmax(following.mean(0)))
        goal = batch.reward[i].item() + batch.discount[i].item() * following[:, best].min()
        errors = [run("live", "critic", batch.observation[i].numpy(), m)[int(batch.action[i])] - goal for m in members]
        expected.append(sum(0.5 * e * e if abs(e) <= 1 else abs(e) - 0.5 for e in errors))
        td.append(np.mean(np.abs(errors)))
    loss, metrics, _ = evaluate(made, learner, batch, made.critic_loss)
    np.testing.assert_allclose(loss, expected, rtol=1e-11)
    np.testing.assert_allclose(metrics["td_error"], td, rtol=1e-11)


def test_td3_critic_smooths_the_targets_action_and_takes_the_least():
    made, learner, batch = prepared(TD3, target_smoothing_sigma=0.9, target_smoothing_clip=0.4)
    run = networks(learner)
    loss, _, nets = evaluate(made, learner, batch, made.critic_loss)
    noise = nets.noise("target smoothing", batch.action.shape).numpy()
    assert (np.abs(0.9 * noise) > 0.4).any()  # or clipping is not tested
    expected = []
    for i in range(len(batch.reward)):
        following = batch.next_observation[i].numpy()
        action = np.clip(np.tanh(run("target", "policy", following)) + np.clip(0.9 * noise[i], -0.4, 0.4), -1, 1)
        least = min(run("target", "critic", np.concatenate([following, action]), m)[0] for m in (0, 1))
        goal = batch.reward[i].item() + batch.discount[i].item() * least
        pair = np.concatenate([batch.observation[i].numpy(), batch.action[i].numpy()])
        expected.append(sum((run("live", "critic", pair, m)[0] - goal) ** 2 for m in (0, 1)))
    np.testing.assert_allclose(loss, expected, rtol=1e-11)


@pytest.mark.parametrize("algorithm", [TD3, TD3PlusBC])
def test_td3_actor_climbs_the_first_critic_and_td3_plus_bc_keeps_to_the_data(algorithm):
    made, learner, batch = prepared(algorithm)
    run = networks(learner)
    value, imitation = [], []
    for o, a in zip(batch.observation, batch.action, strict=True):
        action = np.tanh(run("live", "policy", o.numpy()))
        value.append(run("live", "critic", np.concatenate([o.numpy(), action]), 0)[0])
        imitation.append(np.mean((action - a.numpy()) ** 2))
    expected = -np.array(value)
    if algorithm is TD3PlusBC:
        expected = np.array(imitation) - 2.5 / np.mean(np.abs(value)) * np.array(value)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], expected, rtol=1e-11)


def test_the_weight_of_td3_plus_bc_has_no_gradient():
    made, learner, batch = prepared(TD3PlusBC, alpha=2.0)
    gradients, *_ = learner.gradients(made.actor_loss, ("policy",), batch, learner.address(made.actor_loss))
    policy = learner.modules["policy"]
    action = policy(batch.observation)
    value = learner.modules["critic"](batch.observation, action)[0]
    constant = 2.0 / float(value.detach().abs().mean())
    loss = ((action - batch.action) ** 2).mean(-1).mean() - constant * value.mean()
    for ours, theirs in zip(gradients, torch.autograd.grad(loss, list(policy.parameters())), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)
