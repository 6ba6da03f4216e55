"""Losses of BCQ-Lagrangian, CPQ and COptiDICE against loops in NumPy; the limit, and data that cannot be held to it."""

import warnings

import numpy as np
import pytest
import torch

from d3ray.algos.behaviour.best_of_samples import _numbers
from d3ray.algos.constrained.bcq_lagrangian import BCQLagrangian
from d3ray.algos.constrained.coptidice import COptiDICE
from d3ray.algos.constrained.cpq import CPQ
from d3ray.algos.testing import maker, tiny_arrays, tiny_dataset
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError

from ..loss_values import evaluate, networks, prepared

PAGES = (BCQLagrangian, CPQ, COptiDICE)


def beside(*parts):
    return np.concatenate(parts)


def mixed(values, lam):
    return lam * min(values) + (1 - lam) * max(values)


def the_limit(limit=2.0, gamma=0.99, steps=20):
    return limit * sum(gamma**k for k in range(steps)) / steps


def multiplier(learner):
    return float(np.exp(learner.state()["live/multiplier/log"]))


def perturbed(run, kind, seen, latent, scale):
    action = np.tanh(run("live", "vae_decoder", beside(seen, np.clip(latent, -0.5, 0.5))))
    return np.clip(action + scale * np.tanh(run(kind, "policy", beside(seen, action))), -1, 1)


def rows(batch):
    """Observation, action, reward, cost, next observation and discount of each sample."""
    parts = (batch.observation, batch.action, batch.reward, batch.extra["cost"], batch.next_observation, batch.discount)
    return list(zip(*(part.numpy() for part in parts), strict=True))


# ---- BCQ-Lagrangian

BCQL = {"n_target_samples": 3, "lam": 0.3, "action_flexibility": 0.4, "n_critics": 3, "cost_limit": 2.0, "initial_multiplier": 1.5}


def chosen_next(run, seen, latents, price):
    """The action in a next state, and what the target critics say of it: each of rewards, each of costs."""

    def said(name, action):
        return [run("target", name, beside(seen, action), m)[0] for m in range(3)]

    actions = [perturbed(run, "target", seen, z, 0.4) for z in latents]
    best = max(actions, key=lambda a: mixed(said("critic", a), 0.3) - price * mixed(said("cost_critic", a), 0.7))
    return mixed(said("critic", best), 0.3), mixed(said("cost_critic", best), 0.7)


@pytest.mark.parametrize("td_steps", [1, 3])
def test_bcq_lagrangians_critics_value_the_action_that_pays_for_its_costs(td_steps):
    made, learner, batch = prepared(BCQLagrangian, td_steps=td_steps, **BCQL)
    run, price = networks(learner), 1.5 * multiplier(learner)
    for name, method, at in (("critic", made.critic_loss, 0), ("cost_critic", made.cost_loss, 1)):
        loss, _, nets = evaluate(made, learner, batch, method)
        noise, expected = nets.noise("next action", (3, len(batch.reward), 6)).numpy(), []
        for i, (seen, action, reward, cost, following, discount) in enumerate(rows(batch)):
            goal = (reward, cost)[at] + discount * chosen_next(run, following, noise[:, i], price)[at]
            expected.append(sum((run("live", name, beside(seen, action), m)[0] - goal) ** 2 for m in range(3)))
        np.testing.assert_allclose(loss, expected, rtol=1e-9)


def test_bcq_lagrangians_multiplier_rises_with_what_is_feared_beyond_the_limit():
    made, learner, batch = prepared(BCQLagrangian, **BCQL)
    run, price = networks(learner), 1.5 * multiplier(learner)
    loss, metrics, nets = evaluate(made, learner, batch, made.multiplier_loss)
    noise = nets.noise("next action", (3, len(batch.reward), 6)).numpy()
    excess = [
        (chosen_next(run, following, noise[:, i], price)[1] - the_limit()) * (discount > 0)
        for i, (*_, following, discount) in enumerate(rows(batch))
    ]
    np.testing.assert_allclose(metrics["cost_excess"], excess, rtol=1e-9)
    np.testing.assert_allclose(loss, -price * np.array(excess), rtol=1e-9)


def test_bcq_lagrangians_perturbation_climbs_what_is_left_after_costs():
    made, learner, batch = prepared(BCQLagrangian, **BCQL)
    run, price = networks(learner), 1.5 * multiplier(learner)
    loss, _, nets = evaluate(made, learner, batch, made.actor_loss)
    noise, expected = nets.noise("action", (1, len(batch.reward), 6)).numpy()[0], []
    for (seen, *_), latent in zip(rows(batch), noise, strict=True):
        pair = beside(seen, perturbed(run, "live", seen, latent, 0.4))
        expected.append(price * max(run("live", "cost_critic", pair, m)[0] for m in range(3)) - run("live", "critic", pair, 0)[0])
    np.testing.assert_allclose(loss, expected, rtol=1e-9)


def test_bcq_lagrangian_acts_by_the_candidate_that_is_worth_most_after_costs():
    made, learner, batch = prepared(BCQLagrangian, n_action_samples=5, **BCQL)
    run, seen, price = networks(learner), batch.observation.numpy()[:9], 1.5 * multiplier(learner)

    def worth(pair):
        return run("live", "critic", pair, 0)[0] - price * max(run("live", "cost_critic", pair, m)[0] for m in range(3))

    wanted = []
    for s in seen:
        actions = [perturbed(run, "live", s, z, 0.4) for z in _numbers(5, 6)]
        wanted.append(max(actions, key=lambda a, s=s: worth(beside(s, a))))
    np.testing.assert_allclose(made.predict(seen), wanted, rtol=1e-7)


# ---- CPQ

CPQ_SETTINGS = {"n_action_samples": 4, "far_share": 0.3, "far_factor": 2.0, "cost_limit": 2.0, "initial_multiplier": 1.5}


def drawn(nets, seen, noise):
    """What the live policy draws, by its own distribution, which has tests of its own."""
    return nets.policy(seen).sample(nets.noise(noise, (len(seen), 3))).detach().numpy()


def test_cpqs_critic_sees_nothing_beyond_the_limit():
    made, learner, batch = prepared(CPQ, **CPQ_SETTINGS)
    run, nets = networks(learner), evaluate(made, learner, batch, made.critic_loss)[2]
    following = drawn(nets, batch.next_observation, "next action")
    costs = [
        max(run("target", "cost_critic", beside(s, a), m)[0] for m in range(2))
        for s, a in zip(batch.next_observation.numpy(), following, strict=True)
    ]
    limit = float(np.median(costs))  # so that some are allowed and some are not
    learner.set_hyper("cost_limit", [limit / the_limit(1.0)])
    loss, expected, allowed = evaluate(made, learner, batch, made.critic_loss)[0], [], []
    for (seen, action, reward, _, after, discount), next_action in zip(rows(batch), following, strict=True):
        pair = beside(after, next_action)
        allowed.append(max(run("target", "cost_critic", pair, m)[0] for m in range(2)) <= limit)
        goal = reward + discount * allowed[-1] * min(run("target", "critic", pair, m)[0] for m in range(2))
        expected.append(sum((run("live", "critic", beside(seen, action), m)[0] - goal) ** 2 for m in range(2)))
    np.testing.assert_allclose(loss, expected, rtol=1e-9)
    assert 0 < sum(allowed) < len(allowed)
    loss, _, nets = evaluate(made, learner, batch, made.actor_loss)
    acted = drawn(nets, batch.observation, "action")
    expected = []
    for (seen, *_), action in zip(rows(batch), acted, strict=True):
        pair = beside(seen, action)
        keeps = max(run("live", "cost_critic", pair, m)[0] for m in range(2)) <= limit
        expected.append(-float(keeps) * min(run("live", "critic", pair, m)[0] for m in range(2)))
    np.testing.assert_allclose(loss, expected, rtol=1e-9)


def test_cpqs_cost_critic_is_raised_where_draws_are_far_from_the_data():
    made, learner, batch = prepared(CPQ, **CPQ_SETTINGS)
    run, price = networks(learner), 1.5 * multiplier(learner)
    loss, metrics, nets = evaluate(made, learner, batch, made.cost_loss)
    n, b = 4, len(batch.reward)
    following = drawn(nets, batch.next_observation, "next action")
    seen = np.tile(batch.observation.numpy(), (n, 1))
    draws = (
        nets.policy(batch.observation).sample(nets.noise("action", (n, *batch.action.shape))).detach().numpy().reshape(n * b, -1)
    )
    mean, log_std = (part.detach().numpy() for part in nets.vae_encoder(torch.from_numpy(seen), torch.from_numpy(draws)))
    distance = [
        np.mean([0.5 * (m * m + np.exp(2 * s) - 1) - s for m, s in zip(*z, strict=True)]) for z in zip(mean, log_std, strict=True)
    ]
    order = sorted(distance)
    far = [d >= order[int(np.ceil(0.7 * (n * b - 1)))] for d in distance]
    assert 0.2 < np.mean(far) < 0.4
    expected, beyond = np.zeros(b), np.zeros((2, b))
    for m in range(2):
        of_draws = np.array([run("live", "cost_critic", beside(s, a), m)[0] for s, a in zip(seen, draws, strict=True)])
        beyond[m] = (of_draws * far).reshape(n, b).mean(0) / np.mean(far)
        assert beyond[m].mean() == pytest.approx(of_draws[far].mean())
    for i, ((here, action, _, cost, after, discount), next_action) in enumerate(zip(rows(batch), following, strict=True)):
        pair = beside(after, next_action)
        goal = cost + discount * max(run("target", "cost_critic", pair, m)[0] for m in range(2))
        expected[i] = sum((run("live", "cost_critic", beside(here, action), m)[0] - goal) ** 2 for m in range(2))
        expected[i] -= price * beyond[:, i].sum() + price * (2.0 * the_limit() - beyond[:, i].max())
    np.testing.assert_allclose(loss, expected, rtol=1e-9)
    np.testing.assert_allclose(metrics["far_cost"], beyond.max(0), rtol=1e-9)


def test_cpqs_multiplier_falls_once_what_is_far_is_costly_enough():
    """With a small limit what is far costs more at once; with a large one never."""
    levels = {}
    for limit in (0.2, 1e4):
        made = maker(CPQ, cost_limit=limit, multiplier_learning_rate=0.01)(seed=1)
        levels[limit] = multiplier(made.fit(tiny_dataset(discrete=False, costs=True), 100, 100).fit_.learner)
    assert levels[0.2] < 1 < levels[1e4] <= np.exp(5)


# ---- COptiDICE

DICE = {"alpha": 0.4, "gamma": 0.9, "cost_limit": 2.0, "initial_multiplier": 1.5}


def f(x):
    return x * (np.log(x) - 1) + 1 if x < 1 else 0.5 * (x - 1) ** 2


def weights(run, batch, price):
    """Works out w and e of each sample."""
    found = []
    for seen, _, reward, cost, after, discount in rows(batch):
        e = reward - price * cost + discount * run("live", "value", after)[0] - run("live", "value", seen)[0]
        found.append((np.exp(e / 0.4) if e < 0 else e / 0.4 + 1, e))
    return np.array(found).T


@pytest.mark.parametrize("caution", [0.1, 0.0])
def test_coptidices_losses_are_its_equations(caution):
    made, learner, batch = prepared(COptiDICE, caution=caution, **DICE)
    run, price, first = networks(learner), 1.5 * multiplier(learner), batch.extra["initial"].numpy()
    tau = float(np.exp(learner.state()["live/temperature/log"]))
    w, e = weights(run, batch, price)
    assert ((w > 0) & (w < 1)).any()
    assert (w > 1).any()
    assert set(first) > {0.0}
    found = rows(batch)
    values = [0.1 * i * run("live", "value", s[0])[0] for s, i in zip(found, first, strict=True)]
    expected = [v + a * b - 0.4 * f(a) for v, a, b in zip(values, w, e, strict=True)]
    np.testing.assert_allclose(evaluate(made, learner, batch, made.value_loss)[0], expected, rtol=1e-9)

    ell = []
    for (seen, _, _, cost, after, discount), a, i in zip(found, w, first, strict=True):
        here, there = run("live", "cost_value", seen)[0], run("live", "cost_value", after)[0]
        ell.append(0.1 * i * here + a * (cost + discount * there - here))
    ell = np.array(ell)
    odds = np.exp(ell / tau) / np.exp(ell / tau).mean() if caution else np.ones(len(ell))
    spread = odds * np.log(odds) - odds + 1
    np.testing.assert_allclose(
        evaluate(made, learner, batch, made.cost_value_loss)[0], odds * ell - tau * (spread - caution), rtol=1e-8, atol=1e-10
    )
    costs, limit = np.array([row[3] for row in found]), 0.1 * the_limit(gamma=0.9)
    expected = -price * (odds * w * costs - limit)
    np.testing.assert_allclose(evaluate(made, learner, batch, made.multiplier_loss)[0], expected, rtol=1e-9)
    loss, metrics, _ = evaluate(made, learner, batch, made.actor_loss)
    np.testing.assert_allclose(loss, -w * metrics["log_prob"], rtol=1e-9)


def test_the_mean_over_first_steps_is_that_of_what_initial_weighs():
    data = tiny_dataset(discrete=False, costs=True)
    batch = maker(COptiDICE, batch_size=4096)().fit(data, 1).fit_.sampler(data).sample(3)
    assert batch.extra["initial"].mean() == pytest.approx(1, abs=0.1)


# ---- what all have


@pytest.mark.parametrize("page", PAGES)
def test_data_without_costs_are_refused(page):
    with pytest.raises(DataError, match=rf"^{page.__name__} keeps costs below a limit, and 'tiny' has no column 'cost': ingest"):
        maker(page)().fit(tiny_dataset(discrete=False), 1)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("limit", [-1.0, float("nan"), float("inf")])
def test_a_limit_is_a_number_from_0_on(page, limit):
    with pytest.raises(ConfigError, match=rf"{page.__name__}: cost_limit is {limit}"):
        maker(page, cost_limit=limit)().fit(tiny_dataset(discrete=False, costs=True), 1)


def test_a_limit_that_says_nothing_is_warned_of():
    arrays = tiny_arrays(False, costs=True)
    with pytest.warns(UserWarning, match="cost_limit is 0.001, and no episode of 'tiny' costs less than"):
        maker(CPQ, cost_limit=0.001)().fit(Dataset.from_arrays(**arrays, name="tiny"), 1)
    arrays["extra"] = {"cost": np.zeros(len(arrays["rewards"]))}
    with pytest.warns(UserWarning, match="all costs of 'tiny' are zero"):
        maker(CPQ)().fit(Dataset.from_arrays(**arrays, name="tiny"), 1)


def test_an_episode_is_as_long_as_the_longest_unless_it_is_said():
    data = tiny_dataset(discrete=False, costs=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert maker(CPQ, episode_steps=None)().fit(data, 1).config_.episode_steps == 20
        assert maker(CPQ, episode_steps=7)().fit(data, 1).config_.episode_steps == 7


@pytest.mark.parametrize("page", PAGES)
def test_learning_online_is_refused(page):
    with pytest.raises(ConfigError, match=rf"^{page.__name__} learns offline only: "):
        maker(page)().fit_online("Pendulum-v1")
