"""SAC's losses against loops in NumPy, its distribution against integrals, and a bandit whose answer is known by hand."""

import math

import numpy as np
import pytest
import torch

from d3ray.algos.actor_critic.sac import SAC
from d3ray.algos.networks.distributions import SquashedGaussian
from d3ray.data.dataset import Dataset
from d3ray.data.random import root_key, uniform

from ..loss_values import evaluate, networks, prepared


def draw(output, noise, bounds=(-20.0, 2.0)):
    """An action and its log density, from the network's output and noise of one sample: the density as it is defined."""
    mean, log_std = np.split(output, 2)
    std = np.exp(np.clip(log_std, *bounds))
    raw = mean + std * noise
    action = np.tanh(raw)
    density = [
        math.exp(-0.5 * ((u - m) / s) ** 2) / (s * math.sqrt(2 * math.pi)) / (1 - a * a)
        for u, m, s, a in zip(raw, mean, std, action, strict=True)
    ]
    return action, sum(math.log(d) for d in density)


@pytest.mark.parametrize(
    "settings",
    [{}, {"initial_temperature": 0.3}, {"learn_temperature": False, "initial_temperature": 0.3}],
    ids=["learnt", "learnt from 0.3", "fixed"],
)
def test_the_critics_goal_has_the_entropy_of_the_next_action(settings):
    made, learner, batch = prepared(SAC, temp_learning_rate=0.05, log_std_bounds=(-0.1, 0.05), **settings)
    run, state = networks(learner), learner.state()
    alpha = settings.get("initial_temperature", 1.0)
    if "learn_temperature" not in settings:
        alpha *= math.exp(state["live/temperature/log"].item())
        assert alpha < 0.9 * settings.get("initial_temperature", 1.0)  # it has moved, or its use is not tested
    loss, _, nets = evaluate(made, learner, batch, made.critic_loss)
    noise = nets.noise("next action", batch.action.shape).numpy()
    expected = []
    for i in range(len(batch.reward)):
        following = batch.next_observation[i].numpy()
        action, log_prob = draw(run("live", "policy", following), noise[i], (-0.1, 0.05))
        least = min(run("target", "critic", np.concatenate([following, action]), m)[0] for m in (0, 1))
        goal = batch.reward[i].item() + batch.discount[i].item() * (least - alpha * log_prob)
        pair = np.concatenate([batch.observation[i].numpy(), batch.action[i].numpy()])
        expected.append(sum((run("live", "critic", pair, m)[0] - goal) ** 2 for m in (0, 1)))
    np.testing.assert_allclose(loss, expected, rtol=1e-9)


@pytest.mark.parametrize("target_entropy", [None, 1.25])
def test_the_actor_climbs_the_least_critic_and_the_temperature_seeks_its_entropy(target_entropy):
    made, learner, batch = prepared(SAC, temp_learning_rate=0.05, target_entropy=target_entropy)
    run = networks(learner)
    alpha = math.exp(learner.state()["live/temperature/log"].item())
    loss, metrics, nets = evaluate(made, learner, batch, made.actor_loss)
    noise = nets.noise("action", batch.action.shape).numpy()
    policy, temperature = [], []
    for i in range(len(batch.reward)):
        seen = batch.observation[i].numpy()
        action, log_prob = draw(run("live", "policy", seen), noise[i])
        policy.append(alpha * log_prob - min(run("live", "critic", np.concatenate([seen, action]), m)[0] for m in (0, 1)))
        temperature.append(-alpha * (log_prob + (-3 if target_entropy is None else target_entropy)))
    np.testing.assert_allclose(loss, np.add(policy, temperature), rtol=1e-9)
    np.testing.assert_allclose(metrics["temperature"], alpha, rtol=1e-12)


def test_actor_and_temperature_have_no_gradient_in_each_others_network():
    made, learner, batch = prepared(SAC)
    key = learner.address(made.actor_loss)
    policy = list(learner.modules["policy"].parameters())
    both, *_ = learner.gradients(made.actor_loss, ("policy", "temperature"), batch, key)

    noise = evaluate(made, learner, batch, made.actor_loss)[2].noise("action", batch.action.shape)
    action, log_prob = learner.modules["policy"](batch.observation).sample_with_log_prob(noise)
    alpha = learner.modules["temperature"]().item()
    loss = (alpha * log_prob - learner.modules["critic"](batch.observation, action).amin(0)).mean()
    for ours, theirs in zip(both[:-1], torch.autograd.grad(loss, policy), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(both[-1], -alpha * (log_prob.detach() - 3).mean(), rtol=1e-10, atol=0)


def test_a_squashed_density_is_a_density():
    action = torch.linspace(-1, 1, 200_003, dtype=torch.float64)[1:-1, None]
    for mean, log_std in ((0.0, -1.0), (0.8, 0.3), (-1.5, -0.5)):
        density = SquashedGaussian(torch.tensor([mean]).double(), torch.tensor([log_std]).double()).log_prob(action).exp()
        assert float(density.sum() * 1e-5) == pytest.approx(1, abs=2e-3)


def test_a_squashed_draw_says_its_own_density_where_tanh_has_rounded_to_one():
    policy = SquashedGaussian(torch.full((1, 2), 12.0), torch.full((1, 2), -1.0))
    action, log_prob = policy.sample_with_log_prob(torch.tensor([[0.5, -0.5]]))
    assert float(action[0, 0]) == 1.0  # in float32
    exact = [0.125, 0.125], [12 + 0.5 * math.exp(-1), 12 - 0.5 * math.exp(-1)]
    expected = sum(-half - (-1) - 0.5 * math.log(2 * math.pi) - (math.log(4) - 2 * u) for half, u in zip(*exact, strict=True))
    assert float(log_prob) == pytest.approx(expected, abs=1e-4)  # 1 - tanh(u)² is 4 exp(-2u) there
    far = SquashedGaussian(torch.zeros(1, 2), torch.zeros(1, 2)).log_prob(torch.tensor([[1.0, -1.0]]))
    assert far.isfinite().all()  # data's actions may lie on the edge


def test_a_draw_and_its_density_agree_with_the_density_of_the_action():
    mean, log_std, noise = torch.randn(3, 50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.3
    policy = SquashedGaussian(mean.tanh(), log_std - 1)
    action, log_prob = policy.sample_with_log_prob(noise)
    torch.testing.assert_close(policy.log_prob(action), log_prob, rtol=1e-9, atol=1e-9)
    assert torch.equal(policy.sample(noise), action)
    assert torch.equal(policy.sample(torch.zeros_like(noise)), policy.mode())


def bandit(n=512):
    """One step an episode: reward 1 for an action of 1, falling as the square of the distance, to -3 at -1."""
    action = uniform(root_key(5), (n, 1)).numpy() * 2 - 1
    ends = np.ones(n, bool)
    return Dataset.from_arrays(np.ones((n, 2), np.float32), action, 1 - (1 - action[:, 0]) ** 2, ends, ~ends, name="bandit")


@pytest.mark.parametrize("temperature", [0.02, 1.0])
def test_sac_learns_a_bandits_best_action_at_a_price_for_certainty(temperature):
    """With a small temperature the policy goes to 1; a broken sign would lead to -1.

    With a large one the best density is exp(r / α) on [-1, 1], whose mean is 0.44 by numerical integration; a uniform policy's is
    0, and one without entropy would be at 1.
    """
    small = {"hidden_units": [32]}
    sac = SAC(
        learn_temperature=False, initial_temperature=temperature, actor_encoder=small, critic_encoder=small, batch_size=128,
        actor_learning_rate=5e-3, critic_learning_rate=5e-3,
    )  # fmt: skip
    sac.fit(bandit(), n_steps=500, n_steps_per_epoch=500)
    value = sac.predict_value(np.ones((2, 2), np.float32), np.array([[1.0], [0.0]], np.float32))
    np.testing.assert_allclose(value, [1.0, 0.0], atol=0.2)
    if temperature < 0.1:
        assert sac.predict(np.ones((1, 2), np.float32)) == pytest.approx(1, abs=0.1)
    else:
        a = np.linspace(-1, 1, 20_001)
        density = np.exp(1 - (1 - a) ** 2)
        draws = sac.policy().draw(np.ones((4000, 2), np.float32), step=0, seed=0)
        assert float(draws.mean()) == pytest.approx((a * density).sum() / density.sum(), abs=0.08)


def test_a_learnt_temperature_meets_the_entropy_that_is_asked_for():
    """The bandit's policy ends at the entropy H = -0.5, with a temperature of about 0.2; at the first temperature it is near 0."""
    small = {"hidden_units": [32]}
    sac = SAC(
        target_entropy=-0.5, initial_temperature=0.5, temp_learning_rate=1e-2, actor_encoder=small, critic_encoder=small,
        batch_size=64, actor_learning_rate=5e-3, critic_learning_rate=5e-3,
    )  # fmt: skip
    *_, last = sac.fitter(bandit(), n_steps=500, n_steps_per_epoch=100)
    assert last.metrics["train/entropy"] == pytest.approx(-0.5, abs=0.1)
    assert last.metrics["train/temperature"] == pytest.approx(0.22, abs=0.06)
