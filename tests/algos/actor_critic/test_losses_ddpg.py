"""DDPG's losses against loops in NumPy, and a line whose values are known by hand, for DDPG, TD3 and TD3+BC."""

import numpy as np
import pytest

from d3ray.algos.actor_critic.ddpg import DDPG
from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.actor_critic.td3_plus_bc import TD3PlusBC
from d3ray.data.dataset import Dataset
from d3ray.data.random import root_key, uniform

from ..loss_values import evaluate, networks, prepared


@pytest.mark.parametrize("n_critics", [1, 2])
def test_ddpg_expects_the_targets_own_action(n_critics):
    made, learner, batch = prepared(DDPG, n_critics=n_critics, td_steps=2)
    run, expected = networks(learner), []
    members = range(n_critics)
    for i in range(len(batch.reward)):
        following = batch.next_observation[i].numpy()
        action = np.tanh(run("target", "policy", following))
        least = min(run("target", "critic", np.concatenate([following, action]), m)[0] for m in members)
        goal = batch.reward[i].item() + batch.discount[i].item() * least
        pair = np.concatenate([batch.observation[i].numpy(), batch.action[i].numpy()])
        expected.append(sum((run("live", "critic", pair, m)[0] - goal) ** 2 for m in members))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-11)


@pytest.mark.parametrize("algorithm", [DDPG, TD3])
def test_the_actor_climbs_the_first_critic_and_keeps_its_output_small(algorithm):
    made, learner, batch = prepared(algorithm, n_critics=2, regularizing_rate=0.3)
    run, expected = networks(learner), []
    for seen in batch.observation.numpy():
        raw = run("live", "policy", seen)
        value = run("live", "critic", np.concatenate([seen, np.tanh(raw)]), 0)[0]
        expected.append(-value + 0.3 * np.mean(raw**2))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], expected, rtol=1e-11)


def test_what_is_due_at_each_step():
    def kinds(algorithm):
        return [algorithm.schedule(step) for step in range(4)]

    def fitted(algorithm, **settings):
        return prepared(algorithm, **settings)[0]

    both = ("critic", "actor", "targets")
    assert kinds(fitted(DDPG)) == [both] * 4
    assert kinds(fitted(TD3)) == [("critic",), both] * 2  # choice 2: on steps d, 2d, …
    assert kinds(fitted(TD3, update_actor_interval=4, target_update_interval=1)) == [("critic", "targets")] * 3 + [both]


def line(n=600):
    """Two steps from -1: the first action is free and earns nothing, the second earns -(a - 1/2)², and the episode terminates.

    Observations are the step. By hand, with γ = 0.9 and the best second action: Q(0, a) = 0, Q(1, a) = -(a - 1/2)².
    """
    action = uniform(root_key(3), (n, 1)).numpy() * 2 - 1
    second = np.arange(n) % 2 == 1
    reward = np.where(second, -((action[:, 0] - 0.5) ** 2), 0.0)
    observation = np.stack([~second, second], 1).astype(np.float32)
    return Dataset.from_arrays(observation, action, reward, second, np.zeros(n, bool), name="line")


@pytest.mark.parametrize("algorithm", [DDPG, TD3, TD3PlusBC])
def test_a_line_has_the_values_and_the_action_by_hand(algorithm):
    """A critic that followed the data's actions would have Q(0, a) = -0.9 E[(a - 1/2)²] = -0.53.

    One that bootstrapped past the end has less than that; a policy that imitates is at 0, one with the wrong sign at -1. TD3's
    smoothing costs at most γ σ² = 0.04.
    """
    small, rate = {"hidden_units": [64]}, 1e-2
    settings = {"alpha": 20.0} if algorithm is TD3PlusBC else {}
    made = algorithm(
        actor_encoder=small, critic_encoder=small, batch_size=64, gamma=0.9, tau=0.05, actor_learning_rate=1e-3,
        critic_learning_rate=rate, **settings,
    )  # fmt: skip
    made.fit(line(), n_steps=500, n_steps_per_epoch=500)
    first, second = np.array([[1, 0]] * 3, np.float32), np.array([[0, 1]] * 3, np.float32)
    actions = np.array([[-0.5], [0.0], [0.5]], np.float32)
    np.testing.assert_allclose(made.predict_value(second, actions), [-1.0, -0.25, 0.0], atol=0.12)
    np.testing.assert_allclose(made.predict_value(first, actions), 0.0, atol=0.12)
    assert made.predict(second)[0, 0] == pytest.approx(0.5, abs=0.15)
