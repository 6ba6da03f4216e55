"""What DQN's family goes towards, against loops in NumPy, and what its members come to where they are one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import d3ray
from d3ray.algos import testing
from d3ray.algos.environments.explorers import LinearDecayEpsilonGreedy, PolicyDraws
from d3ray.algos.networks.q_functions import Categorical
from d3ray.algos.online.run import default_explorer
from d3ray.algos.stack import Stack
from d3ray.algos.values.al import AL
from d3ray.algos.values.categorical_double_dqn import CategoricalDoubleDQN
from d3ray.algos.values.categorical_dqn import CategoricalDQN
from d3ray.algos.values.double_dqn import DoubleDQN
from d3ray.algos.values.double_pal import DoublePAL
from d3ray.algos.values.dpp import DPP
from d3ray.algos.values.dqn import DQN
from d3ray.algos.values.iqn import IQN
from d3ray.algos.values.pal import PAL
from d3ray.algos.values.rainbow import Rainbow
from d3ray.data.errors import ConfigError

from ..loss_values import evaluate, networks, prepared

DATA = testing.tiny_dataset(discrete=True)
SEEN = DATA.columns["observation"]
MEMBERS = 2


def huber(error):
    return 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5


class Sample:
    """Q of both networks at both states of one transition, [members, actions]."""

    def __init__(self, run, batch, i):
        self.action, self.reward, self.discount = (part[i].item() for part in (batch.action, batch.reward, batch.discount))
        for name, seen in (("here", batch.observation[i]), ("there", batch.next_observation[i])):
            for kind in ("live", "target"):
                found = np.array([run(kind, "critic", seen.numpy(), member) for member in range(MEMBERS)])
                setattr(self, f"{kind}_{name}", found)

    def best(self, values):
        return int(np.argmax(values.mean(0)))


def gap(sample, values):
    least = values.min(0)
    return least[sample.best(values)] - least[sample.action]


def dqn(one):
    return one.reward + one.discount * one.target_there[:, one.best(one.target_there)].min()


def double(one):
    return one.reward + one.discount * one.target_there[:, one.best(one.live_there)].min()


def persistent(one, bellman):
    after = gap(one, one.target_there) if one.discount else 0
    return bellman(one) - 0.7 * min(gap(one, one.target_here), after)


def softmax(values, eta=2.0):
    shares = np.exp(eta * (values - values.max()))
    return (shares / shares.sum() * values).sum()


def log_partition(values, eta=2.0):
    return np.log(np.exp(eta * values).sum()) / eta


def dynamic(one, worth):
    here, there = one.target_here.min(0), one.target_there.min(0)
    return here[one.action] - worth(here) + one.reward + one.discount * worth(there)


@pytest.mark.parametrize(
    ("algorithm", "settings", "goal"),
    [
        (DQN, {}, dqn),
        (DoubleDQN, {}, double),
        (AL, {"alpha": 0.7}, lambda one: dqn(one) - 0.7 * gap(one, one.target_here)),
        (PAL, {"alpha": 0.7}, lambda one: persistent(one, dqn)),
        (DoublePAL, {"alpha": 0.7}, lambda one: persistent(one, double)),
        (DPP, {"eta": 2.0}, lambda one: dynamic(one, softmax)),
        (DPP, {"eta": 2.0, "operator": "log_partition"}, lambda one: dynamic(one, log_partition)),
        (DPP, {"operator": "max"}, lambda one: dqn(one) - gap(one, one.target_here)),
    ],
)
def test_the_operator_is_its_equation(algorithm, settings, goal):
    made, learner, batch = prepared(algorithm, n_critics=MEMBERS, learning_rate=3e-2, td_steps=2, **settings)
    run, expected = networks(learner), []
    for i in range(len(batch.action)):
        one = Sample(run, batch, i)
        expected.append(sum(huber(goal(one) - one.live_here[member, one.action]) for member in range(MEMBERS)))
    found, *_ = evaluate(made, learner, batch, made.critic_loss)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert (batch.discount == 0).any()


def weights(made):
    return {name: tensor for name, tensor in made.state()[0].items() if name.startswith(("live/", "target/", "optimizer/"))}


def same_weights(a, b):
    a, b = weights(a), weights(b)
    return len(a) > 8 and a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("one", "settings", "other", "its"),
    [
        (AL, {"alpha": 0.0}, DQN, {}),
        (PAL, {"alpha": 0.0}, DQN, {}),
        (DoublePAL, {"alpha": 0.0}, DoubleDQN, {}),
        (DPP, {"operator": "max"}, AL, {"alpha": 1.0}),
        (DPP, {"eta": 1e9}, AL, {"alpha": 1.0}),
        (CategoricalDQN, {"q_function": "mean"}, DQN, {}),
        (CategoricalDoubleDQN, {}, DoubleDQN, {"q_function": "categorical"}),
        (IQN, {}, DQN, {"q_function": "iqn", "optimizer": IQN.Config.model_fields["optimizer"].default}),
        (Rainbow, {"double": False, "q_function": "mean", "td_steps": 1, "sampler": None}, DQN, {}),
        (Rainbow, {"q_function": "mean", "td_steps": 1, "sampler": None}, DoubleDQN, {}),
    ],
)
def test_what_is_left_of_one_is_another(one, settings, other, its):
    """To the bit, after steps in which targets moved."""
    same = {"learning_rate": 1e-2, "target_update_interval": 5, "batch_size": 16, "encoder": {"hidden_units": [8]}, "seed": 3}
    a, b = one(**same, **settings).fit(DATA, 23), other(**same, **its).fit(DATA, 23)
    assert same_weights(a, b)


def test_a_gap_shifts_the_atoms_of_a_goal():
    """C51 with AL: the next action's atoms, r + γ z, each less α times the gap of expectations; weights stay."""
    made, learner, batch = prepared(AL, alpha=0.7, learning_rate=3e-2, q_function={"name": "categorical", "n_atoms": 5})
    nets = learner._nets(learner.address(made.critic_loss), learner._h)
    goal = made.goal(nets, batch, learner._h)
    with torch.no_grad():
        here, there = nets.target.critic(batch.observation)[0], nets.target.critic.distributions(batch.next_observation)
    chosen = nets.target.critic(batch.next_observation)[0].argmax(-1)
    support = torch.linspace(-10, 10, 5, dtype=torch.float64)
    for i in range(len(batch.action)):
        less = 0.7 * (here[i].max() - here[i, batch.action[i]])
        torch.testing.assert_close(goal.atoms[:, i], batch.reward[i] + batch.discount[i] * support - less)
        torch.testing.assert_close(goal.weights[:, i], there.weights[0, chosen[i], :, i])


def test_dpps_goal_of_atoms_is_the_mixture_of_the_next_actions():
    """Its expectation is the equation's, its weights those of the softmax, action by action."""
    made, learner, batch = prepared(DPP, eta=2.0, learning_rate=3e-2, q_function={"name": "qr", "n_quantiles": 4})
    key = learner.address(made.critic_loss)
    nets = learner._nets(key, learner._h)
    with torch.no_grad():
        goal, here = made.goal(nets, batch, learner._h), nets.target.critic(batch.observation)[0]
        there = nets.target.critic(batch.next_observation)[0]
    n = DATA.spec.n_actions
    assert goal.atoms.shape == goal.weights.shape == (4 * n, len(batch.action))
    for i in range(len(batch.action)):
        expected = here[i, batch.action[i]].item() - softmax(here[i].numpy())
        expected += batch.reward[i].item() + batch.discount[i].item() * softmax(there[i].numpy())
        assert goal.mean[i].item() == pytest.approx(expected, rel=1e-10)
        torch.testing.assert_close(goal.weights[:, i].reshape(n, 4).sum(1), (2 * there[i]).softmax(-1))


# ---- every head with every operator

HEADS = ["mean", "qr", "iqn", "fqf", "categorical"]
ENDS = [{}, {"dueling": True}, {"noisy": 0.5}, {"dueling": True, "noisy": 0.5}]


@pytest.mark.parametrize("ends", ENDS, ids=lambda ends: "+".join(ends) or "plain")
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("algorithm", [DQN, DoubleDQN, AL, PAL, DPP])
def test_every_head_goes_with_every_operator(algorithm, head, ends):
    """A stack's rows are single runs, and values and losses are finite."""
    made = testing.maker(algorithm, q_function={"name": head, **ends}, n_critics=2)(seed=0)
    stack = Stack(made, seeds=[0, 1]).fit(DATA, 4)
    alone = testing.maker(algorithm, q_function={"name": head, **ends}, n_critics=2)(seed=1).fit(DATA, 4)
    values = alone.predict_value(SEEN[:5], DATA.columns["action"][:5])
    assert np.isfinite(values).all()
    np.testing.assert_allclose(stack.seed(1).predict_value(SEEN[:5], DATA.columns["action"][:5]), values, rtol=2e-4, atol=2e-5)
    assert bool(ends.get("noisy")) == alone.stochastic


@pytest.mark.parametrize("algorithm", [AL, DoublePAL, DPP, CategoricalDQN, IQN, Rainbow])
def test_a_resumed_run_is_what_it_would_have_been(algorithm):
    testing.check_resumes_bit_for_bit(testing.maker(algorithm))


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        ("TD3", {"q_function": {"name": "mean", "dueling": True}}, "dueling tells a state's value .* needs discrete actions"),
        ("DQN", {"q_function": {"name": "iqn", "dueling": True, "stream_units": 8}}, "A head over embedded fractions is affine"),
        ("DQN", {"q_function": {"name": "mean", "stream_units": 8}}, "there are no two streams without dueling=True"),
        ("CategoricalDQN", {"q_function": {"name": "categorical", "v_min": 2.0, "v_max": 2.0}}, "v_min is 2.0 and v_max 2.0"),
    ],
)
def test_what_cannot_be_combined_is_refused(algorithm, settings, message):
    data = testing.tiny_dataset(discrete=algorithm != "TD3")
    with pytest.raises(ConfigError, match=message):
        getattr(d3ray, algorithm)(**settings).fit(data, 1)


# ---- noisy layers explore


def test_noisy_layers_explore_and_rest():
    """Greedy by the means of the weights; a draw is another one's at each call; no ε is needed online."""
    made = testing.maker(Rainbow, learning_rate=1e-2, q_function=Categorical(dueling=True, noisy=3.0, v_min=-2, v_max=2))(seed=1)
    made.fit(DATA, 30)
    np.testing.assert_array_equal(made.predict(SEEN), made.predict(SEEN))
    draws = np.stack([made.sample_action(SEEN) for _ in range(10)])
    assert (draws != draws[0]).any()
    assert isinstance(default_explorer(made, discrete=True), PolicyDraws)
    assert isinstance(default_explorer(testing.maker(DQN)(seed=1).fit(DATA, 1), discrete=True), LinearDecayEpsilonGreedy)
