"""ReBRAC's losses against loops in NumPy, and which transitions it learns from."""

import numpy as np
import pytest
import torch

from d3ray.algos.actor_critic.rebrac import ReBRAC
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError

from ..loss_values import evaluate, networks, prepared


def value(run, kind, seen, action, member):
    return run(kind, "critic", np.concatenate([seen, action]), member)[0]


def test_the_critics_goal_is_lowered_by_the_distance_from_what_was_done_next():
    made, learner, batch = prepared(ReBRAC, critic_beta=0.4, td_steps=2, target_smoothing_sigma=0.6)
    run = networks(learner)
    noise = evaluate(made, learner, batch, made.critic_loss)[2].noise("target smoothing", batch.action.shape).numpy()
    expected, clipped = [], 0
    for i, seen in enumerate(batch.next_observation.numpy()):
        shift = np.clip(0.6 * noise[i], -0.5, 0.5)
        action = np.clip(np.tanh(run("target", "policy", seen)) + shift, -1, 1)
        clipped += int((np.abs(0.6 * noise[i]) > 0.5).sum())
        distance = sum((a - b) ** 2 for a, b in zip(action, batch.next_action[i].numpy(), strict=True))
        following = min(value(run, "target", seen, action, m) for m in (0, 1)) - 0.4 * distance
        goal = batch.reward[i].item() + batch.discount[i].item() * following
        mine = batch.observation[i].numpy(), batch.action[i].numpy()
        expected.append(sum((value(run, "live", *mine, m) - goal) ** 2 for m in (0, 1)))
    assert clipped
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-10)


def test_the_actor_weighs_the_least_critic_against_the_data():
    made, learner, batch = prepared(ReBRAC, actor_beta=0.3)
    with torch.no_grad():  # critics that are the least one in turn
        first, second = learner.modules["critic"](batch.observation, learner.modules["policy"](batch.observation))
        learner.live["critic"]["head.bias"][1] += (first - second).median()
    run = networks(learner)
    values, distances = [], []
    for i, seen in enumerate(batch.observation.numpy()):
        action = np.tanh(run("live", "policy", seen))
        values.append(min(value(run, "live", seen, action, m) for m in (0, 1)))
        distances.append(sum((action - batch.action[i].numpy()) ** 2))
    assert any(value < other.item() - 1e-6 for value, other in zip(values, first, strict=True))
    expected = 0.3 * np.array(distances) - np.array(values) / np.mean(np.abs(values))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.actor_loss)[0], expected, rtol=1e-10)


def test_the_weight_of_the_value_has_no_gradient():
    """Of λ min Q alone the gradient of the actor would vanish in the direction that scales all values, were λ no constant."""
    made, learner, batch = prepared(ReBRAC, actor_beta=0.0)
    gradients = learner.gradients(made.actor_loss, ("policy",), batch, learner.address(made.actor_loss))[0]
    policy, critic = learner.modules["policy"], learner.modules["critic"]
    least = critic(batch.observation, policy(batch.observation)).amin(0)
    plain = torch.autograd.grad(-(least / least.abs().mean().item()).mean(), list(policy.parameters()))
    named = dict(zip(dict(policy.named_parameters()), plain, strict=True))
    for name, gradient in zip(learner.live["policy"], gradients, strict=True):
        torch.testing.assert_close(gradient, named[name], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("td_steps", [1, 3])
def test_steps_at_which_an_episode_was_cut_are_not_learned_from(td_steps):
    data = tiny_dataset(discrete=False)
    made = maker(ReBRAC, td_steps=td_steps, batch_size=256)().fit(data, n_steps=0)
    sampler = made.fit_.sampler(data)
    lengths, terminated = np.asarray(data.episodes.steps), np.asarray(data.episodes.terminated)
    assert sampler.n_windows == int(np.where(terminated, lengths, np.maximum(lengths - td_steps, 0)).sum())
    batch = sampler.sample(0)
    acted = {tuple(action.tolist()) for action in torch.from_numpy(np.asarray(data.columns["action"]))[~data.columns["closing"]]}
    for action, alive in zip(batch.next_action, batch.discount, strict=True):
        assert tuple(action.tolist()) in acted or alive == 0


def test_data_in_which_no_step_is_followed_by_another_are_refused():
    n = 30
    single = Dataset.from_arrays(
        np.zeros((n, 2), "f4"),
        np.zeros((n, 1), "f4"),
        np.zeros(n, "f4"),
        np.zeros(n, bool),
        np.ones(n, bool),
        final_observations=np.zeros((n, 2), "f4"),
    )
    with pytest.raises(DataError, match="an action, or a terminal, follows"):
        maker(ReBRAC)().fit(single, n_steps=1)


def test_presets_are_the_papers_table():
    presets = ReBRAC.presets
    assert sum(name.startswith("d4rl-") for name in presets) == 36
    chosen = ReBRAC.from_preset("d4rl-antmaze-large-play").check_settings()
    assert (chosen.actor_beta, chosen.critic_beta, chosen.gamma, chosen.critic_learning_rate) == (0.002, 0.001, 0.999, 5e-5)
    assert chosen.reward_scaler.multiplier == 100
    adroit = ReBRAC.from_preset("d4rl-hammer-cloned").check_settings()
    assert (adroit.actor_beta, adroit.critic_beta, adroit.batch_size, adroit.critic_encoder.normalization) == (
        0.1,
        0.5,
        256,
        "layer",
    )
