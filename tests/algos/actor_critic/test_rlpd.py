"""RLPD's goal and actor against loops in NumPy."""

import numpy as np
import pytest
import torch

from d3ray.algos.actor_critic.rlpd import RLPD
from d3ray.data.errors import ConfigError

from .. import slow_losses as slow
from ..loss_values import as_tensors, evaluate, networks, prepared


def beside(*parts):
    return np.concatenate(parts)


@pytest.mark.parametrize("entropy", [True, False])
def test_the_goal_is_the_least_of_some_critics_that_are_drawn_for_the_batch(entropy):
    made, learner, batch = prepared(RLPD, n_critics=4, n_target_critics=2, backup_entropy=entropy)
    run, (loss, _, nets) = networks(learner), evaluate(made, learner, batch, made.critic_loss)
    chosen = np.argsort(nets.uniform("critics", (4,)).numpy())[:2]
    noise = nets.noise("next action", batch.action.shape)
    alpha, wanted = float(learner.live["temperature"]["log"].detach().exp()), []
    for i, after in enumerate(batch.next_observation):
        action, log_prob = slow.squashed(as_tensors(run)("live", "policy", after), noise[i])
        following = min(run("target", "critic", beside(after.numpy(), action.numpy()), m)[0] for m in chosen)
        following -= alpha * float(log_prob) if entropy else 0.0
        goal = batch.reward[i].item() + batch.discount[i].item() * following
        mine = beside(batch.observation[i].numpy(), batch.action[i].numpy())
        wanted.append(sum((run("live", "critic", mine, m)[0] - goal) ** 2 for m in range(4)))
    np.testing.assert_allclose(loss, wanted, rtol=1e-7)


def test_more_critics_asked_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="n_target_critics is 5, and there are n_critics = 2 to ask"):
        RLPD(n_critics=2, n_target_critics=5).check_settings()


def test_the_policy_climbs_the_mean_of_all_critics_and_aims_at_half_the_entropy():
    made, learner, batch = prepared(RLPD, n_critics=3)
    run, (loss, _, nets) = as_tensors(networks(learner)), evaluate(made, learner, batch, made.actor_loss)
    noise, log = nets.noise("action", batch.action.shape), learner.live["temperature"]["log"].detach()
    alpha, wanted = log.exp(), []
    for i, seen in enumerate(batch.observation):
        action, log_prob = slow.squashed(run("live", "policy", seen), noise[i])
        value = torch.stack(slow.critics(run, "live", seen, action, 3)).mean()
        wanted.append(float(alpha * log_prob - value - alpha * (log_prob - len(action) / 2)))
    np.testing.assert_allclose(loss, wanted, rtol=1e-7)
