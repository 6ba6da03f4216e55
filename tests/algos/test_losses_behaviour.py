"""The behaviour model, MMD, and losses of BCQ against loops in NumPy; what acting by the best of some actions means."""

import numpy as np
import pytest
import torch

from d3ray.algos.bcq import BCQ
from d3ray.algos.mmd import mmd
from d3ray.algos.sampled_actions import _numbers
from d3ray.algos.stack import Stack
from d3ray.algos.testing import maker, tiny_arrays, tiny_dataset
from d3ray.data.dataset import Dataset

from .losses import evaluate, networks, prepared


def beside(*parts):
    return np.concatenate(parts)


def mixed(values, lam):
    return lam * min(values) + (1 - lam) * max(values)


def perturbed(run, kind, seen, latent, scale):
    """BCQ's action for one latent, of the live or the target perturbation."""
    action = np.tanh(run("live", "vae_decoder", beside(seen, np.clip(latent, -0.5, 0.5))))
    return np.clip(action + scale * np.tanh(run(kind, "policy", beside(seen, action))), -1, 1)


@pytest.mark.parametrize("beta", [0.5, 0.0])
def test_the_behaviour_model_rebuilds_actions_and_keeps_to_its_prior(beta):
    made, learner, batch = prepared(BCQ, beta=beta, latent_size=4)
    run, (loss, metrics, nets) = networks(learner), evaluate(made, learner, batch, made.imitation_loss)
    noise, expected = nets.noise("latent", (len(batch.reward), 4)).numpy(), []
    for i, (seen, action) in enumerate(zip(batch.observation.numpy(), batch.action.numpy(), strict=True)):
        output = run("live", "vae_encoder", beside(seen, action))
        mean, std = output[:4], np.exp(np.clip(output[4:], -4, 15))
        again = np.tanh(run("live", "vae_decoder", beside(seen, mean + std * noise[i])))
        divergence = np.mean([0.5 * (m**2 + s**2 - 1) - np.log(s) for m, s in zip(mean, std, strict=True)])
        expected.append(np.mean((action - again) ** 2) + beta * divergence)
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
    assert set(metrics) == {"reconstruction", "divergence"}


@pytest.mark.parametrize("kernel", ["laplacian", "gaussian"])
def test_mmd_is_a_mean_over_pairs(kernel):
    rng = np.random.default_rng(0)
    x, y, sigma = rng.normal(size=(3, 2, 4)), rng.normal(1, 2, size=(5, 2, 4)), 0.7

    def mean(a, b, at):
        power = 1 if kernel == "laplacian" else 2
        return np.mean([np.exp(-(np.abs(p[at] - q[at]) ** power).sum() / (2 * sigma)) for p in a for q in b])

    expected = [np.sqrt(mean(x, x, b) + mean(y, y, b) - 2 * mean(x, y, b) + 1e-6) for b in range(2)]
    found = mmd(torch.from_numpy(x), torch.from_numpy(y), kernel, torch.tensor(sigma, dtype=torch.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    same = mmd(torch.from_numpy(x), torch.from_numpy(x), kernel, torch.tensor(sigma))
    np.testing.assert_allclose(same, 1e-3, rtol=1e-6)  # the least that there is: √1e-6


def test_bcqs_goal_is_the_best_of_what_the_behaviour_might_do():
    made, learner, batch = prepared(BCQ, n_target_samples=3, lam=0.3, action_flexibility=0.4, n_critics=3)
    run, (loss, _, nets) = networks(learner), evaluate(made, learner, batch, made.critic_loss)
    noise, expected = nets.noise("next action", (3, len(batch.reward), 6)).numpy(), []
    for i, seen in enumerate(batch.next_observation.numpy()):
        actions = [perturbed(run, "target", seen, noise[k, i], 0.4) for k in range(3)]
        best = max(mixed([run("target", "critic", beside(seen, a), m)[0] for m in range(3)], 0.3) for a in actions)
        goal = batch.reward[i].item() + batch.discount[i].item() * best
        mine = beside(batch.observation[i].numpy(), batch.action[i].numpy())
        expected.append(sum((run("live", "critic", mine, m)[0] - goal) ** 2 for m in range(3)))
    np.testing.assert_allclose(loss, expected, rtol=1e-10)


def test_bcqs_perturbation_climbs_the_first_critic():
    made, learner, batch = prepared(BCQ, action_flexibility=0.4)
    run, (loss, _, nets) = networks(learner), evaluate(made, learner, batch, made.actor_loss)
    noise = nets.noise("action", (1, len(batch.reward), 6)).numpy()[0]
    seen = batch.observation.numpy()
    actions = [perturbed(run, "live", s, z, 0.4) for s, z in zip(seen, noise, strict=True)]
    expected = [-run("live", "critic", beside(s, a), 0)[0] for s, a in zip(seen, actions, strict=True)]
    np.testing.assert_allclose(loss, expected, rtol=1e-10)


def test_bcq_acts_by_the_best_of_the_same_candidates():
    made, learner, batch = prepared(BCQ, n_action_samples=5, action_flexibility=0.4)
    run, seen, latents = networks(learner), batch.observation.numpy()[:9], _numbers(5, 6)
    wanted = []
    for s in seen:
        actions = [perturbed(run, "live", s, z, 0.4) for z in latents]
        wanted.append(max(actions, key=lambda a, s=s: run("live", "critic", beside(s, a), 0)[0]))
    np.testing.assert_allclose(made.predict(seen), wanted, rtol=1e-10)
    draws = np.stack([made.sample_action(seen) for _ in range(3)])
    assert (draws.std(0) > 0).any()


def test_a_row_acts_by_its_own_coefficients():
    """A coefficient of a row moves its actions, and those of what is made of it."""
    make, dataset = maker(BCQ, n_action_samples=3), tiny_dataset(discrete=False)
    stack = Stack(make(), (3, 4), [{}, {"action_flexibility": 1.0}]).fit(dataset, 3, 3)
    alone = make(seed=4, action_flexibility=1.0).fit(dataset, 3, 3)
    seen = dataset.columns["observation"][:8]
    np.testing.assert_allclose(stack.seed(1).predict(seen), alone.predict(seen), atol=1e-4)
    assert stack.seed(1).coefficient("action_flexibility") == 1.0


@pytest.mark.parametrize(("still", "says"), [((0, 1, 2), "and the actions of 'still'"), ((1,), "and entries 1 of the actions")])
def test_data_without_variety_are_warned_of(still, says):
    arrays = tiny_arrays(False)
    arrays["actions"][:, list(still)] = 0.25
    with pytest.warns(UserWarning, match=f"BCQ keeps to the behaviour that its data show, {says}"):
        maker(BCQ)().fit(Dataset.from_arrays(**arrays, name="still"), 1)
