"""Losses of algorithms over values of discrete actions, against loops in NumPy, with each Q-function; and how they act."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from d3ray.algos.values.discrete_cql import DiscreteCQL
from d3ray.algos.values.double_dqn import DoubleDQN

from ..loss_values import evaluate, networks, prepared

FAST = {"learning_rate": 0.2, "target_update_interval": 100}  # targets are far from what is trained
KINDS = ["mean", "qr", {"name": "iqn", "n_quantiles": 4}, {"name": "fqf", "n_quantiles": 4}, "categorical"]


def huber(x):
    return 0.5 * x * x if abs(x) <= 1 else abs(x) - 0.5


def of_all(run, kind, seen, members):
    """Q_i(s, ·), [members, A]."""
    return np.array([run(kind, "critic", seen.numpy(), m) for m in range(members)])


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


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind if isinstance(kind, str) else kind["name"])
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
