"""Losing runs show themselves, alone and in stacks, and runs can be ranked without an environment."""

import warnings

import numpy as np
import pytest
import torch

from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.actor_critic.td3_plus_bc import TD3PlusBC
from d3ray.algos.behaviour.plas import PLAS
from d3ray.algos.imitation.awr import AWR
from d3ray.algos.imitation.bc import BC
from d3ray.algos.in_sample.iql import IQL
from d3ray.algos.judging.held_out import HeldOut
from d3ray.algos.learning.diagnostics import _dead, gradient_norm
from d3ray.algos.learning.divergence import DivergenceWarning, divergence
from d3ray.algos.stack import Stack
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.algos.values.dqn import DQN
from d3ray.data.dataset import Dataset

DATA = tiny_dataset(discrete=False)


def last_metrics(made, n_steps=10):
    return [epoch.metrics for epoch in made.fitter(DATA, n_steps, n_steps)][-1]


def test_gradient_norms_are_of_whole_networks_and_of_each_row():
    a, b = torch.tensor([[3.0], [1.0]]), torch.tensor([4.0, 2.0])
    assert float(gradient_norm([a[0], b[0]], stacked=False)) == 5.0
    assert gradient_norm([a, b], stacked=True).tolist() == [5.0, pytest.approx(5**0.5)]


def test_the_last_update_of_an_epoch_is_watched():
    made = maker(TD3PlusBC)(seed=1)
    made.fit(DATA, 9, 9)
    twin = maker(TD3PlusBC)(seed=1).fit(DATA, 9, 9)
    metrics = last_metrics(made, 1)
    batch = twin.fit_.sampler(DATA).sample(9)
    gradients, *_ = twin.fit_.learner.gradients(twin.critic_loss, ("critic",), batch, twin.fit_.learner.address(twin.critic_loss))
    by_hand = sum(float(g.square().sum()) for g in gradients) ** 0.5
    assert metrics["train/critic_gradient_norm"] == pytest.approx(by_hand, rel=1e-5)
    twin.fit(DATA, 1, 1)
    with torch.no_grad():
        action = twin.act(twin.fit_.nets(), batch.observation, {}, {})[0]
        value = twin.value(twin.fit_.nets(), batch.observation, batch.action)
    assert metrics["train/action_saturation"] == float((action.abs() >= 0.99).float().mean())
    assert metrics["train/q_value_max"] == pytest.approx(float(value.max()), rel=1e-6)


def test_rows_of_a_stack_are_watched_by_their_own_coefficients():
    rows = [{}, {"value_scale": 1.0}]
    (stacked,) = Stack(maker(AWR)(), (3, 4), rows).fitter(DATA, 5, 5)
    (alone,) = maker(AWR, value_scale=1.0)(seed=4).fitter(DATA, 5, 5)
    for name in ("train/q_value_max", "train/action_saturation"):
        assert stacked.metrics[1][name] == pytest.approx(alone.metrics[name], rel=1e-3)


def test_watching_changes_nothing():
    often, seldom = maker(TD3PlusBC)(seed=1), maker(TD3PlusBC)(seed=1)
    often.fit(DATA, 12, 1)
    seldom.fit(DATA, 12, 12)
    for name, tensor in often.state()[0].items():
        assert torch.equal(tensor, seldom.state()[0][name]), name


def test_dead_units_and_saturated_actions_are_counted():
    made = maker(TD3PlusBC, actor_learning_rate=1e-12, update_actor_interval=1)(seed=0)
    made.fit(DATA, 0)
    policy = made.fit_.learner.live["policy"]
    first = next(name for name in policy if name.endswith("bias"))
    with torch.no_grad():
        policy[first][:4] = -1e6  # four of the sixteen units of the first of two layers
        policy["head.bias"].fill_(50.0)
    metrics = last_metrics(made)
    rest = metrics["train/policy_dead_units"] - (4 / 16) / 2
    assert 0 <= rest < 0.1  # units that are dead by themselves on a batch of 16
    assert metrics["train/action_saturation"] == 1.0


def test_dead_channels_are_those_that_are_dark_everywhere():
    light = torch.zeros(2, 4, 3, 3)
    light[0, 1, 2, 2] = 1.0
    assert float(_dead(light, image=True)) == 0.75
    assert float(_dead(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), image=False)) == 0.5


def test_rows_of_a_stack_are_watched_as_single_runs_are():
    stack = Stack(maker(TD3PlusBC)(dtype="float64"), (3, 4))
    rows = next(stack.fitter(DATA, 10, 10)).metrics
    for seed, row in zip((3, 4), rows, strict=True):
        alone = last_metrics(maker(TD3PlusBC)(dtype="float64", seed=seed))
        watched = [n for n in alone if n.endswith(("gradient_norm", "dead_units", "saturation", "q_value_max"))]
        assert len(watched) == 6
        for name in watched:
            assert row[name] == pytest.approx(alone[name], rel=1e-9, abs=1e-12), name


def test_divergence_is_a_mean_value_ten_times_beyond_every_return():
    assert divergence({"q_value": 999.0}, 1.0, 0.99) is None
    assert divergence({"q_value": 1001.0, "temperature": 1.0, "entropy": 1.0}, 1.0, 0.99) is None  # entropy is reward too
    assert divergence({"q_value": -1001.0}, 1.0, 0.99) == (
        "values diverge: the mean Q-value is -1e+03, and with these rewards no return can exceed 100"
    )
    assert divergence({"q_value": 1e9}, 1.0, 1.0) is None
    assert divergence({}, 1.0, 0.9) is None


def test_a_diverging_run_warns_once_and_a_sound_one_never():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        maker(TD3PlusBC)().fit(DATA, 30, 10)
    wild = maker(TD3PlusBC, critic_learning_rate=10.0, tau=1.0, gamma=0.9)(seed=2)
    sentence = r"TD3PlusBC, seed 2, step \d+: values diverge: the mean Q-value is .* no return can exceed"
    with pytest.warns(DivergenceWarning, match=sentence) as seen:
        wild.fit(DATA, 60, 10)
    assert len(seen) == 1
    assert list(wild.fit_.divergence.warned) == [2]


def test_rows_of_one_seed_are_warned_of_each_for_itself():
    stack = Stack(maker(TD3PlusBC, tau=1.0, gamma=0.9)(), (2, 2), rows=[{"critic_learning_rate": 10.0}] * 2)
    with pytest.warns(DivergenceWarning) as seen:
        stack.fit(DATA, 60, 10)
    assert len(seen) == 2
    assert list(stack.fit_.divergence.warned) == [2]


def test_weights_that_are_no_longer_finite_are_warned_of_once_with_the_first_step():
    """Training went on to its end without a word; so it did where the last step of all made weights NaN."""
    lost = maker(BC, learning_rate=1e39)(seed=2)  # beyond float32: the first step makes weights infinite
    with pytest.warns(DivergenceWarning, match=r"BC, seed 2, step \d+: losses are not finite from there on") as seen:
        epochs = [epoch.metrics for epoch in lost.fitter(DATA, 30, 10)]
    assert len(seen) == 1
    step = int(next(metrics["first_bad_step"] for metrics in epochs if "first_bad_step" in metrics))
    assert f"step {step}:" in str(seen[0].message)
    with pytest.warns(DivergenceWarning, match=f"step {step}: losses"):
        (epoch,) = maker(BC, learning_rate=1e39)(seed=2).fitter(DATA, step, step)
    assert epoch.metrics["first_bad_step"] == step
    stack = Stack(maker(BC)(), (2, 3), rows=[{"learning_rate": 1e30}, {}])
    with pytest.warns(DivergenceWarning, match="BC, seed 2") as seen:
        stack.fit(DATA, 30, 10)
    assert len(seen) == 1
    assert list(stack.failed) == [2]


def test_held_out_losses_are_those_of_training_on_other_transitions():
    train, test = DATA.split(0.3, seed=0)
    made = maker(BC)(dtype="float64").fit(train, 5)
    found = HeldOut(test)(made, 1)
    batch = made.fit_.sources.fixed(test, 4096)
    by_hand = float(((made.predict(batch.observation.numpy()) - batch.action.numpy()) ** 2).mean())
    assert found["imitation_loss"] == pytest.approx(by_hand, rel=1e-9)
    assert set(found) == {"action_error", "imitation_loss"}
    state = made.state()[0]
    HeldOut(test)(made, 1)
    assert all(torch.equal(tensor, made.state()[0][name]) for name, tensor in state.items())


def test_a_loss_that_is_only_read_is_the_one_that_is_trained():
    """Without dropout they are equal: as many fractions of the live critic and of its target, and the same noise."""
    kind = {"name": "iqn", "n_quantiles": 4, "n_target_quantiles": 16}
    made = maker(TD3, q_function=kind)(dtype="float64").fit(DATA, 2)
    learner, batch = made.fit_.learner, made.fit_.sources.fixed(DATA, 64)
    read = learner.value(made.critic_loss, batch)
    _, trained, *_ = learner.gradients(made.critic_loss, ("critic",), batch, learner.address(made.critic_loss))
    torch.testing.assert_close(read, trained.detach(), rtol=1e-12, atol=0)


def test_a_loss_that_is_only_read_makes_no_noise_for_other_steps():
    made = maker(TD3)().fit(DATA, 0)
    learner = made.fit_.learner
    learner.value(made.critic_loss, made.fit_.sources.fixed(DATA, 64))
    keys, ahead = learner.now.made["critic_loss"]
    assert len(keys) == len(learner.now)
    assert ahead._made == {}


def test_held_out_transitions_are_drawn_once():
    class Counting(Dataset):
        reads = 0

        @property
        def columns(self):
            Counting.reads += 1
            return super().columns

    train, test = DATA.split(0.3, seed=0)
    test.__class__ = Counting
    held, made, reads = HeldOut(test), maker(TD3PlusBC)(), []
    for epoch in range(1, 5):
        if epoch == 4:
            held.close()  # lets go of it
        held(made.fit(train, 5), epoch)
        reads.append(Counting.reads)
    assert 0 < reads[0] == reads[1] == reads[2] < reads[3]


def test_held_out_losses_are_the_same_ones_however_seldom_an_update_is_due():
    train, test = DATA.split(0.3, seed=0)
    held, made = HeldOut(test), maker(TD3PlusBC, update_actor_interval=1000)()
    found = [set(held(made.fit(train, 1), epoch)) for epoch in (1, 2)]
    assert found == [{"critic_loss", "actor_loss", "td_error", "action_error"}] * 2


def test_held_out_losses_after_a_warm_up_are_among_them_before_and_after():
    train, test = DATA.split(0.3, seed=0)
    held, made = HeldOut(test), maker(PLAS, warmup_steps=5_000)()
    before = held(made.fit(train, 1), 1)
    assert {"imitation_loss", "critic_loss", "actor_loss"} < before.keys()
    made.step = 5_000
    assert held(made.fit(train, 1), 2).keys() == before.keys()


def test_held_out_errors_of_a_row_discount_by_its_own_gamma():
    train, test = DATA.split(0.3, seed=0)
    stack = Stack(maker(TD3PlusBC)(dtype="float64"), (3, 4), [{}, {"gamma": 0.1}]).fit(train, 3, 3)
    alone = maker(TD3PlusBC)(dtype="float64", seed=4, gamma=0.1).fit(train, 3, 3)
    assert HeldOut(test)(stack.seed(1), 1)["td_error"] == pytest.approx(HeldOut(test)(alone, 1)["td_error"], rel=1e-6)


def test_held_out_losses_rank_runs_and_rest_their_dropout():
    train, test = DATA.split(0.3, seed=0)
    held = HeldOut(test)
    made = maker(TD3PlusBC, actor_encoder={"hidden_units": [16], "dropout_rate": 0.5})().fit(train, 3)
    assert {"critic_loss", "actor_loss", "td_error", "action_error"} == set(held(made, 1))
    assert held(made, 1) == held(made, 2)
    assert {"critic_loss", "actor_loss", "value_loss"} < set(held(maker(IQL)().fit(train, 3), 1))
    rng = np.random.default_rng(0)
    observation = rng.normal(size=(600, 3)).astype("f4")
    ends = np.arange(600) % 20 == 19
    data = Dataset.from_arrays(observation, np.tanh(observation[:, :2]), np.ones(600), ends)
    known, unknown = data.split(0.3, seed=0)
    scores = [HeldOut(unknown)(maker(BC, learning_rate=rate)().fit(known, 200), 1)["imitation_loss"] for rate in (1e-6, 1e-2)]
    assert scores[1] < 0.5 * scores[0]
    assert HeldOut(tiny_dataset(discrete=True))(maker(DQN)().fit(tiny_dataset(discrete=True), 1), 1)["critic_loss"] > 0
