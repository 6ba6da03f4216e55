"""Losses of algorithms over values of discrete actions, against loops in NumPy, with each Q-function; and how they act."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax

from d3ray.algos import testing
from d3ray.algos.values.discrete_bcq import DiscreteBCQ
from d3ray.algos.values.discrete_cql import DiscreteCQL
from d3ray.algos.values.discrete_sac import DiscreteSAC
from d3ray.algos.values.double_dqn import DoubleDQN
from d3ray.algos.values.dqn import DQN
from d3ray.algos.values.nfq import NFQ
from d3ray.data.dataset import Dataset

from ..loss_values import evaluate, networks, prepared

FAST = {"learning_rate": 0.2, "target_update_interval": 100}  # targets are far from what is trained
KINDS = ["mean", "qr", {"name": "iqn", "n_quantiles": 4}, {"name": "fqf", "n_quantiles": 4}, "categorical"]


def name_of(kind):
    return kind if isinstance(kind, str) else kind["name"]


def huber(x):
    return 0.5 * x * x if abs(x) <= 1 else abs(x) - 0.5


def of_all(run, kind, seen, members):
    """Q_i(s, ·), [members, A]."""
    return np.array([run(kind, "critic", seen.numpy(), m) for m in range(members)])


# ---- NFQ


@pytest.mark.parametrize("n_critics", [1, 2])
def test_nfq_asks_the_network_that_it_trains(n_critics):
    made, learner, batch = prepared(NFQ, n_critics=n_critics, learning_rate=1e-2)
    assert not learner.target.get("critic")
    run, expected = networks(learner), []
    for b, action in enumerate(batch.action.tolist()):
        following = of_all(run, "live", batch.next_observation[b], n_critics)
        goal = batch.reward[b].item() + batch.discount[b].item() * following[:, following.mean(0).argmax()].min()
        expected.append(sum(huber(values[action] - goal) for values in of_all(run, "live", batch.observation[b], n_critics)))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-10)


def test_no_gradient_goes_through_nfqs_goal():
    made, learner, batch = prepared(NFQ, learning_rate=1e-2)
    found, *_ = learner.gradients(made.critic_loss, ("critic",), batch, learner.address(made.critic_loss))
    critic = learner.modules["critic"]
    with torch.no_grad():
        goal = batch.reward + batch.discount * critic(batch.next_observation)[0].max(-1).values
    taken = critic(batch.observation)[0].gather(-1, batch.action[:, None])[:, 0]
    wanted = torch.autograd.grad(torch.nn.functional.huber_loss(taken, goal), list(critic.parameters()))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


# ---- DiscreteCQL


@pytest.mark.parametrize(("n_critics", "double"), [(1, True), (2, True), (2, False)])
def test_discrete_cql_adds_each_members_gap(n_critics, double):
    made, learner, batch = prepared(DiscreteCQL, n_critics=n_critics, double=double, alpha=0.7, **FAST)
    run, expected, gaps, chosen = networks(learner), [], [], set()
    for b, action in enumerate(batch.action.tolist()):
        target = of_all(run, "target", batch.next_observation[b], n_critics)
        live = of_all(run, "live", batch.next_observation[b], n_critics)
        best = [int(values.mean(0).argmax()) for values in (target, live)]
        chosen.add(best[0] == best[1])
        goal = batch.reward[b].item() + batch.discount[b].item() * target[:, best[double]].min()
        here = of_all(run, "live", batch.observation[b], n_critics)
        gap = [logsumexp(values) - values[action] for values in here]
        gaps.append(np.mean(gap))
        expected.append(sum(huber(values[action] - goal) for values in here) + 0.7 * sum(gap))
    assert False in chosen  # or it does not matter which network chooses
    loss, metrics, _ = evaluate(made, learner, batch, made.critic_loss)
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
    np.testing.assert_allclose(metrics["gap"], gaps, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_the_gap_of_any_q_function_is_of_expected_values(kind):
    """The rest is DoubleDQN's loss."""
    made, learner, batch = prepared(DiscreteCQL, q_function=kind, alpha=0.7, n_critics=2, **FAST)
    loss, _, nets = evaluate(made, learner, batch, made.critic_loss)
    values = learner.modules["critic"](batch.observation).detach().numpy()
    gap = [sum(logsumexp(v[b]) - v[b, action] for v in values) for b, action in enumerate(batch.action.tolist())]
    assert np.abs(gap).max() > 0.1
    learner.set_hyper("alpha", [0.0])
    plain = evaluate(made, learner, batch, made.critic_loss)[0]
    np.testing.assert_allclose(loss - plain, 0.7 * np.array(gap), rtol=1e-9, atol=1e-12)
    if kind in ("mean", "qr", "categorical"):  # nothing is drawn
        rest = DoubleDQN.critic_loss(made, nets, batch, learner._h)[0].sum(0)
        np.testing.assert_allclose(plain, rest.detach().numpy(), rtol=1e-10)


# ---- DiscreteBCQ


def first_features(learner, seen):
    """What the first critic's encoder makes of an observation."""
    state, x = learner.state(), seen.numpy()
    names = sorted({name.rsplit(".", 1)[0] for name in state if name.startswith("live/critic/encoder.layers")})
    for name in names:
        weight, bias = (state[f"{name}.{part}"].numpy() for part in ("weight", "bias"))
        weight, bias = (weight, bias) if weight.ndim == 2 else (weight[0], bias[0, 0])
        x = np.maximum(x @ weight + bias, 0)
    return x


def likelihoods(run, learner, seen):
    """G(·|s)."""
    own = learner.algorithm.config_.imitator_encoder is not None
    logits = run("live", "imitator", seen.numpy() if own else first_features(learner, seen))
    return np.exp(logits) / np.exp(logits).sum()


@pytest.mark.parametrize("n_critics", [1, 2])
@pytest.mark.parametrize("encoder", [None, {"hidden_units": [8]}])
def test_discrete_bcq_looks_ahead_among_likely_actions(n_critics, encoder):
    settings = {"n_critics": n_critics, "imitator_encoder": encoder, "action_flexibility": 0.8, "beta": 0.3}
    made, learner, batch = prepared(DiscreteBCQ, **settings, **FAST)
    with torch.no_grad():
        learner.live["imitator"]["head.weight"].normal_(generator=torch.Generator().manual_seed(0))
    run, expected, log_probs, kept_off = networks(learner), [], [], set()
    for b, action in enumerate(batch.action.tolist()):
        likely = likelihoods(run, learner, batch.next_observation[b])
        live = of_all(run, "live", batch.next_observation[b], n_critics).mean(0)
        allowed = [a for a in range(3) if likely[a] / likely.max() > 0.8]
        best = max(allowed, key=lambda a: live[a])
        kept_off.add(best != live.argmax())
        target = of_all(run, "target", batch.next_observation[b], n_critics)
        goal = batch.reward[b].item() + batch.discount[b].item() * target[:, best].min()
        here = of_all(run, "live", batch.observation[b], n_critics)
        likely = np.log(likelihoods(run, learner, batch.observation[b]))
        imitation = -likely[action] + 0.3 * np.mean(likely**2)
        log_probs.append(likely[action])
        expected.append(sum(huber(values[action] - goal) for values in here) + imitation)
    assert kept_off == {True, False}
    loss, metrics, _ = evaluate(made, learner, batch, made.critic_loss)
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
    np.testing.assert_allclose(metrics["log_prob"], log_probs, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_discrete_bcq_acts_by_the_best_of_the_likely_actions(kind):
    made, learner, _ = prepared(DiscreteBCQ, q_function=kind, imitator_encoder=None, action_flexibility=0.9, n_critics=2, **FAST)
    seen = testing.tiny_dataset(discrete=True).columns["observation"][:100].astype(np.float64)
    run, values = networks(learner), learner.modules["critic"](torch.from_numpy(seen)).mean(0).detach().numpy()
    likely = np.array([likelihoods(run, learner, torch.from_numpy(row)) for row in seen])
    best = np.where(likely / likely.max(-1, keepdims=True) > 0.9, values, -np.inf).argmax(-1)
    np.testing.assert_array_equal(made.predict(seen), best)
    assert (best != values.argmax(-1)).any()


def test_both_losses_train_a_shared_encoder():
    made, learner, batch = prepared(DiscreteBCQ, imitator_encoder=None)
    key = learner.address(made.critic_loss)
    whole, *_ = learner.gradients(made.critic_loss, ("critic", "imitator"), batch, key)
    logits = learner.modules["imitator"](learner.modules["critic"].features(batch.observation))
    imitation = torch.nn.functional.cross_entropy(logits, batch.action) + 0.5 * logits.log_softmax(-1).square().mean()
    td = DoubleDQN.critic_loss(made, evaluate(made, learner, batch, made.critic_loss)[2], batch, learner._h)[0].mean()
    parameters = [*learner.live["critic"].values(), *learner.live["imitator"].values()]
    for ours, theirs in zip(whole, torch.autograd.grad(td + imitation, parameters), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-13)


# ---- DiscreteSAC


def chances(run, seen):
    """π(·|s)."""
    logits = run("live", "policy", seen.numpy())
    return np.exp(logits) / np.exp(logits).sum()


def temperature(learner):
    return math.exp(learner.state()["live/temperature/log"].item())


SPREAD = {"actor_learning_rate": 0.1, "critic_learning_rate": 0.1, "temp_learning_rate": 0.05, "target_update_interval": 100}


@pytest.mark.parametrize("settings", [{}, {"learn_temperature": False, "initial_temperature": 0.3, "n_critics": 1}])
def test_discrete_sacs_goal_is_the_exact_soft_value(settings):
    made, learner, batch = prepared(DiscreteSAC, **SPREAD, **settings)
    run, expected, members = networks(learner), [], settings.get("n_critics", 2)
    alpha = 0.3 if settings else temperature(learner)
    assert alpha != 1
    for b, action in enumerate(batch.action.tolist()):
        following, pi = batch.next_observation[b], chances(run, batch.next_observation[b])
        least = of_all(run, "target", following, members).min(0)
        soft = sum(pi[a] * (least[a] - alpha * math.log(pi[a])) for a in range(3))
        goal = batch.reward[b].item() + batch.discount[b].item() * soft
        expected.append(sum(huber(values[action] - goal) for values in of_all(run, "live", batch.observation[b], members)))
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-10)


def test_discrete_sacs_goal_of_a_distribution_is_the_mixture():
    """Atom by atom: of each action the member with the least mean, less α log π, counted by π."""
    made, learner, batch = prepared(DiscreteSAC, q_function={"name": "qr", "n_quantiles": 4}, **SPREAD)
    run, alpha = networks(learner), temperature(learner)
    goal = made.goal(evaluate(made, learner, batch, made.critic_loss)[2], batch, learner._h)
    for b in range(len(batch.reward)):
        quantiles = of_all(run, "target", batch.next_observation[b], 2).reshape(2, 3, 4)
        pi, atoms = chances(run, batch.next_observation[b]), {}
        for a in range(3):
            for atom in quantiles[quantiles[:, a].mean(-1).argmin(), a]:
                atoms[batch.reward[b].item() + batch.discount[b].item() * (atom - alpha * math.log(pi[a]))] = pi[a] / 4
        found = sorted(zip(goal.atoms[:, b].tolist(), goal.weights[:, b].tolist(), strict=True))
        wanted = sorted(atoms.items())
        if batch.discount[b] > 0:
            np.testing.assert_allclose(found, wanted, rtol=1e-10)
        assert goal.weights[:, b].sum().item() == pytest.approx(1)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_discrete_sacs_actor_and_temperature(kind):
    made, learner, batch = prepared(DiscreteSAC, q_function=kind, entropy_share=0.8, **SPREAD)
    run, alpha, expected, entropies = networks(learner), temperature(learner), [], []
    values = learner.modules["critic"](batch.observation).detach().numpy().min(0)
    for b in range(len(batch.reward)):
        pi = chances(run, batch.observation[b])
        entropy = -sum(p * math.log(p) for p in pi)
        entropies.append(entropy)
        actor = sum(pi[a] * (alpha * math.log(pi[a]) - values[b, a]) for a in range(3))
        expected.append(actor + alpha * (entropy - 0.8 * math.log(3)))
    loss, metrics, _ = evaluate(made, learner, batch, made.actor_loss)
    np.testing.assert_allclose(loss, expected, rtol=1e-10)
    np.testing.assert_allclose(metrics["entropy"], entropies, rtol=1e-10)


def test_neither_loss_moves_what_the_other_learns():
    made, learner, batch = prepared(DiscreteSAC, **SPREAD)
    found, *_ = learner.gradients(made.actor_loss, ("temperature",), batch, learner.address(made.actor_loss))
    entropy = learner.modules["policy"](batch.observation).entropy().mean().item()
    assert found[0].item() == pytest.approx(temperature(learner) * (entropy - 0.98 * math.log(3)), rel=1e-10)
    found, *_ = learner.gradients(made.actor_loss, ("policy",), batch, learner.address(made.actor_loss))
    policy, alpha = learner.modules["policy"], temperature(learner)
    with torch.no_grad():
        values = learner.modules["critic"](batch.observation).amin(0)
    log_probs = policy(batch.observation).log_probs
    wanted = torch.autograd.grad((log_probs.exp() * (alpha * log_probs - values)).sum(-1).mean(), list(policy.parameters()))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-13)


BANDIT = np.array([1.0, 0.0, -1.0])


def on_a_bandit(**settings):
    """One state, three actions, an episode of one step: Q(s, a) is the reward."""
    action = np.arange(600) % 3
    seen, ends = np.ones((600, 1), np.float32), np.ones(600, bool)
    data = Dataset.from_arrays(seen, action, BANDIT[action].astype(np.float32), ends, ~ends, name="bandit")
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "temp_learning_rate"), 1e-2)
    encoders = {f"{of}_encoder": {"hidden_units": [8]} for of in ("actor", "critic")}
    return DiscreteSAC(**rates, **encoders, **settings).fit(data, 600, 600)


@pytest.mark.long
def test_with_a_fixed_temperature_the_policy_becomes_the_softmax_of_values():
    made = on_a_bandit(learn_temperature=False, initial_temperature=0.7)
    drawn = made.sample_action(np.ones((20_000, 1), np.float32))
    shares = np.bincount(drawn, minlength=3) / len(drawn)
    np.testing.assert_allclose(shares, softmax(BANDIT / 0.7), atol=0.02)
    found = made.policy().log_prob(np.ones((3, 1), np.float32), np.arange(3))
    np.testing.assert_allclose(np.exp(found), softmax(BANDIT / 0.7), atol=0.02)
    assert made.predict(np.ones((1, 1), np.float32)).tolist() == [0]


@pytest.mark.long
def test_a_learnt_temperature_leads_to_the_entropy_that_is_aimed_at():
    made = on_a_bandit(entropy_share=0.6)
    found = made.policy().log_prob(np.ones((3, 1), np.float32), np.arange(3))
    assert -(np.exp(found) * found).sum() == pytest.approx(0.6 * math.log(3), abs=0.05)


# ---- presets, typed by hand from the files that they name


def test_presets():
    atari = DiscreteCQL.from_preset("atari").check_settings()
    assert (atari.q_function.n_quantiles, atari.learning_rate, atari.optimizer.epsilon) == (200, 5e-5, 0.0003125)
    assert (atari.alpha, atari.double, atari.target_update_interval * 4, atari.batch_size) == (1.0, False, 8000, 32)
    little = DiscreteCQL.from_preset("atari-1-percent").check_settings()
    assert little == atari.model_copy(update={"alpha": 4.0, "double": True})
    for algorithm in (DiscreteCQL, DiscreteBCQ, NFQ):
        theirs = algorithm.from_preset("d3rlpy").check_settings()
        assert (theirs.learning_rate, theirs.optimizer.epsilon, theirs.batch_size, theirs.n_critics) == (6.25e-5, 1e-8, 32, 1)
    for algorithm in (DiscreteCQL, DiscreteBCQ):
        old = algorithm.from_preset("d3rlpy-2020").check_settings()
        assert (old.learning_rate, old.optimizer.epsilon, old.target_update_interval) == (6.25e-5, 1.5e-4, 8000)
    paper = DiscreteBCQ.from_preset("paper").check_settings()
    assert (paper.action_flexibility, paper.beta, paper.learning_rate, paper.optimizer.epsilon) == (0.3, 0.01, 6.25e-5, 1.5e-4)
    soft = DiscreteSAC.from_preset("d3rlpy").check_settings()
    assert (soft.batch_size, soft.n_critics, soft.target_update_interval, soft.tau) == (64, 2, 8000, 1.0)


@pytest.mark.parametrize(("amount", "loss", "warns"), [(50.0, None, True), (1.0, None, False), (50.0, "squared", False)])
def test_rewards_that_the_huber_loss_has_no_mean_of_are_told(amount: float, loss: Any, warns: bool) -> None:
    rng, n = np.random.default_rng(0), 200
    arrays = rng.normal(size=(n, 2)), rng.integers(0, 2, n), amount * (rng.random(n) < 0.2), np.ones(n, bool)
    data = Dataset.from_arrays(*arrays, name="amounts")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        DQN(q_function={"name": "mean", "loss": loss}, encoder={"hidden_units": [8]}).build_with_dataset(data)
    said = [str(one.message) for one in told if "Huber" in str(one.message)]
    assert bool(said) is warns
    assert all(one.startswith("DQN: the rewards of 'amounts' have a standard deviation of 2") for one in said)
