"""XQL's Gumbel regression and Huber loss against loops in NumPy, and what its value converges to."""

import math

import numpy as np
import pytest

from d3ray.algos.in_sample.xql import XQL
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError

from .. import slow_losses as slow
from ..loss_values import as_tensors, evaluate, networks, prepared


def critics(run, kind, seen, action):
    return [run(kind, "critic", np.concatenate([seen, action]), m)[0] for m in (0, 1)]


@pytest.mark.parametrize(
    "settings",
    [
        {"gumbel_temp": 0.5, "max_clip": 0.1},
        {"gumbel_temp": 0.05, "max_clip": None},
        {"gumbel_temp": 0.3, "n_random_actions": 2},
        {"gumbel_temp": 0.3, "perturb_actions": True, "perturbation_std": 0.4, "n_random_actions": 1},
    ],
)
def test_the_value_is_regressed_with_gumbel_errors(settings):
    made, learner, batch = prepared(XQL, **settings)
    loss, _, nets = evaluate(made, learner, batch, made.value_loss)
    n, shape, actions = settings.get("n_random_actions", 0), batch.action.shape, [batch.action]
    if "perturb_actions" in settings:
        noise = (0.4 * nets.noise("perturbation", shape)).clamp(-0.5, 0.5)
        assert (noise.abs() == 0.5).any()
        actions = [(actions[0] + noise).clamp(-1, 1)]
    if n:
        actions += list(2 * nets.uniform("random action", (n, *shape)) - 1)
    clip, run = settings.get("max_clip", 7.0), as_tensors(networks(learner))
    asked = list(zip(*actions, strict=True))
    expected, z = slow.gumbel(run, slow.samples(batch), asked, settings["gumbel_temp"], clip)
    assert clip != 0.1 or 0.1 in z
    np.testing.assert_allclose(loss, expected, rtol=1e-9, atol=1e-13)


def test_the_largest_error_is_at_least_minus_one_and_a_number():
    """Values far above Q: z is about -1,000, and the loss is linear in it, of slope -exp(1)."""
    made, learner, batch = prepared(XQL, gumbel_temp=1e-3)
    learner.live["value"]["head.bias"].data += 10.0
    loss, metrics, _ = evaluate(made, learner, batch, made.value_loss)
    z = metrics["advantage"] / 1e-3
    assert z.max() < -1000
    np.testing.assert_allclose(loss, -(z + 1) * math.e, rtol=1e-9)
    gradient = learner.gradients(made.value_loss, ("value",), batch, learner.address(made.value_loss))[0]
    names = list(learner.live["value"])
    assert gradient[names.index("head.bias")].item() == pytest.approx(math.e / 1e-3, rel=1e-9)  # a gradient through m adds to it


@pytest.mark.parametrize("delta", [0.3, 50.0])
def test_the_critics_loss_is_hubers_towards_the_value(delta):
    made, learner, batch = prepared(XQL, huber_delta=delta, td_steps=2)
    run = as_tensors(networks(learner))
    expected, other = ([slow.huber(run, one, d) for one in slow.samples(batch)] for d in (delta, 1e9))
    assert (expected != other) == (delta == 0.3)  # some errors are in the linear part
    np.testing.assert_allclose(evaluate(made, learner, batch, made.critic_loss)[0], expected, rtol=1e-10)


def test_the_actor_is_iqls_and_the_value_steps_first():
    made, learner, batch = prepared(XQL, n_value_updates=3)
    seen = []
    minimise = learner.minimise
    learner.minimise = lambda loss, name, given: (seen.append(name), minimise(loss, name, given))
    learner.update(batch)
    del learner.minimise
    assert seen == ["value", "value", "value", "policy", "critic"]
    loss, metrics, _ = evaluate(made, learner, batch, made.actor_loss)
    run = networks(learner)
    for i, state in enumerate(batch.observation.numpy()):
        advantage = min(critics(run, "target", state, batch.action[i].numpy())) - run("live", "value", state)[0]
        assert metrics["weight"][i] == pytest.approx(min(math.exp(3 * advantage), 100.0), rel=1e-9)
        assert loss[i] == pytest.approx(-metrics["weight"][i] * metrics["log_prob"][i], rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("beta", [0.5])
def test_the_value_is_the_soft_maximum(beta):
    """A coin: reward 0 or 1. β log E[exp(Q / β)] is 0.72 for β = 0.5 and 0.52 for β = 5, where the mean is 0.5 and the best 1."""
    n = 400
    action = np.where(np.arange(n) % 2, 0.8, -0.8).astype("f4")[:, None]
    data = Dataset.from_arrays(np.ones((n, 1), "f4"), action, np.arange(n) % 2.0, np.ones(n, bool), np.zeros(n, bool))
    rates = dict.fromkeys(("actor_learning_rate", "critic_learning_rate", "value_learning_rate"), 3e-3)
    made = maker(XQL, **rates, gumbel_temp=beta, batch_size=64, tau=0.05, actor_optimizer="adam")(seed=1).fit(data, n_steps=350)
    value = made.fit_.learner.modules["value"](made.fit_.scaling.observation(np.ones((1, 1), "f4"))).item()
    assert value == pytest.approx(beta * math.log((1 + math.exp(1 / beta)) / 2), abs=0.05)
    assert made.predict(np.ones((1, 1), "f4"))[0, 0] > 0.3


def test_discrete_actions_are_refused():
    with pytest.raises(DataError, match="continuous"):
        XQL().fit(tiny_dataset(discrete=True), n_steps=1)
