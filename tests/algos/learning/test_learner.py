"""The learner's verbs, hyper-parameters in place, rows that fail alone, metrics, state."""

import numpy as np
import pytest
import torch

from d3ray.algos.actor_critic.td3 import TD3
from d3ray.algos.actor_critic.td3_plus_bc import TD3PlusBC
from d3ray.algos.learning.fit import pick_device
from d3ray.algos.nets import Nets
from d3ray.algos.stack import Stack
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.algos.values.dqn import DQN
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.random import fold, normal

CONTINUOUS = tiny_dataset(discrete=False)
DISCRETE = tiny_dataset(discrete=True)


def clone(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


def test_minimise_moves_the_named_network_only():
    made = maker(TD3)().fit(CONTINUOUS, 1)
    learner, batch = made.fit_.learner, made.fit_.sampler(CONTINUOUS).sample(5)
    critic, policy = clone(learner.live["critic"]), clone(learner.live["policy"])
    learner.minimise(made.actor_loss, "policy", batch)  # the actor's loss passes through the critic
    assert all(torch.equal(critic[name], learner.live["critic"][name]) for name in critic)
    assert all(not torch.equal(policy[name], learner.live["policy"][name]) for name in policy)
    assert all(p.grad is None or not p.grad.any() for p in learner.modules["critic"].parameters())


@pytest.mark.parametrize("stacked", [False, True])
def test_track_is_the_weighted_mean_and_copy_is_equality(stacked):
    made = maker(TD3)()
    runner = Stack(made, (1, 2), rows=[{"tau": 0.25}, {"tau": 0.5}]) if stacked else maker(TD3, tau=0.25)(seed=1)
    learner = runner.fit(CONTINUOUS, 3).fit_.learner
    live, target = clone(learner.live["critic"]), clone(learner.target["critic"])
    learner.track("critic", rate="tau")
    for name in live:
        for k, tau in enumerate((0.25, 0.5) if stacked else (0.25,)):
            now, was, mine = (t[name][k] if stacked else t[name] for t in (learner.target["critic"], target, live))
            torch.testing.assert_close(now, tau * mine + (1 - tau) * was)
    learner.copy("critic")
    assert all(torch.equal(learner.target["critic"][name], learner.live["critic"][name]) for name in live)
    learner.minimise(runner.fit_.algorithm.critic_loss, "critic", runner.fit_.sampler(CONTINUOUS).sample(9))
    assert not all(torch.equal(learner.target["critic"][name], learner.live["critic"][name]) for name in live)


def test_targets_begin_equal_and_follow_the_schedule():
    made = maker(DQN, target_update_interval=3, learning_rate=1e-2)().fit(DISCRETE, 0)
    learner, sampler = made.fit_.learner, made.fit_.sampler(DISCRETE)
    equal = []
    for step in range(7):
        learner.update(sampler.sample(step))
        equal.append(all(torch.equal(learner.target["critic"][n], p) for n, p in learner.live["critic"].items()))
    assert equal == [False, False, True, False, False, True, False]


@pytest.mark.parametrize("shape", [(256, 3), (5, 1), (7,), (3000, 3)])
def test_noise_drawn_for_many_steps_at_once_is_that_of_each_steps_own_address(shape):
    made = maker(TD3)(seed=4).fit(CONTINUOUS, 0)
    learner, earlier = made.fit_.learner, []
    for step in (0, 3, 127, 128, 1000):
        learner.step = step
        key, ahead = learner._address(made.critic_loss)
        earlier.append((key, ahead, normal(fold(key, "smoothing"), shape)))
    for key, ahead, expected in reversed(earlier):  # an address that was kept is still its own step's
        nets = Nets(learner.modules, {}, Nets({}, {}, None, key, torch.float32), key, torch.float32, ahead=ahead)
        assert torch.equal(nets.noise("smoothing", shape), expected)
        assert not torch.equal(nets.noise("others", shape), expected)


def test_delayed_updates_fall_on_steps_d_2d():
    made = maker(TD3, update_actor_interval=3)().fit(CONTINUOUS, 0)
    assert [made.schedule(step) for step in range(6)] == [("critic",), ("critic",), ("critic", "actor", "targets")] * 2


def test_hyper_parameters_are_written_in_place_and_act_at_once():
    """A learning rate of zero stops a network; the tensor that losses read is the same object before and after."""
    made = maker(TD3)().fit(CONTINUOUS, 2)
    learner, sampler = made.fit_.learner, made.fit_.sampler(CONTINUOUS)
    tensor = learner.hyper["critic_learning_rate"]
    before = clone(learner.live["critic"])
    learner.set_hyper("critic_learning_rate", [0.0])
    learner.update(sampler.sample(2))
    assert learner.hyper["critic_learning_rate"] is tensor
    assert all(torch.equal(before[name], learner.live["critic"][name]) for name in before)
    learner.set_hyper("gamma", [0.0])
    assert float(sampler.sample(3).discount.abs().max()) == 0.0


def test_rows_that_differ_in_coefficients_learn_what_each_learns_alone():
    rows = [{"alpha": 1.0, "tau": 0.02}, {"actor_learning_rate": 1e-3}, {"gamma": 0.5, "critic_learning_rate": 3e-3}]
    stack = Stack(maker(TD3PlusBC)(dtype="float64"), (0, 1, 2), rows=rows).fit(CONTINUOUS, 60)
    for k, row in enumerate(rows):
        alone = maker(TD3PlusBC, **row)(dtype="float64", seed=k).fit(CONTINUOUS, 60)
        ours, theirs = stack.seed(k).state()[0], alone.state()[0]
        for name in theirs:
            torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=2e-14, msg=name)


def test_rows_of_a_stack_may_not_shape_the_program():
    with pytest.raises(ConfigError, match=r"Rows of a stack may differ in .*'batch_size' shapes the program"):
        Stack(maker(TD3)(), (0, 1), rows=[{"batch_size": 3}, {}])


def test_a_row_that_fails_leaves_rows_of_the_same_seed_alone():
    rows = [{}, {"critic_learning_rate": 1e35}, {}]
    stack, evaluators = Stack(maker(TD3)(), (3, 3, 3), rows=rows), {"seen": lambda algorithm, epoch: {"at": float(epoch)}}
    logged = [["seen/at" in row for row in epoch.metrics] for epoch in stack.fitter(CONTINUOUS, 20, 10, evaluators)]
    assert logged == [[True, False, True]] * 2
    assert list(stack.failed_rows) == [1]
    assert stack.failed == {3: stack.failed_rows[1]}
    tensors, meta = stack.state()
    assert Stack(maker(TD3)(), (0,)).load_state(tensors, meta).failed_rows == stack.failed_rows


@pytest.mark.parametrize("k", [3, 10, -1, 0.5, None])
def test_an_unknown_row_of_a_stack_is_refused(k):
    stack = Stack(maker(TD3)(), (3, 4, 10)).fit(CONTINUOUS, 1)
    with pytest.raises(ConfigError, match=f"There is no row {k!r} in this stack"):
        stack.seed(k)
    assert stack.seed(np.int64(2)).seed == 10


def test_a_row_that_diverges_fails_alone_at_its_first_bad_step():
    rows = [{}, {"critic_learning_rate": 1e35}, {}]
    stack, well = (Stack(maker(TD3)(), (0, 1, 2), rows=r) for r in (rows, [{}, {}, {}]))
    stack.fit(CONTINUOUS, 40, 10)
    well.fit(CONTINUOUS, 40, 10)
    assert list(stack.failed) == [1]
    alone = maker(TD3, critic_learning_rate=1e35)(seed=1)
    first = next(int(m["first_bad_step"]) for _, m in alone.fitter(CONTINUOUS, 40, 10) if "first_bad_step" in m)
    assert stack.failed[1] == first
    assert 0 < first < 10
    for k in (0, 2):
        assert all(
            torch.equal(a, b) for a, b in zip(stack.seed(k).state()[0].values(), well.seed(k).state()[0].values(), strict=True)
        )


def test_a_step_without_an_update_is_no_bad_one():
    class EverySecond(DQN):
        def schedule(self, step):
            return super().schedule(step) if step % 2 else ()

    stack = Stack(maker(EverySecond)(), (0, 1)).fit(DISCRETE, 8, 4)
    assert stack.failed == {}


def test_metrics_are_means_over_the_epoch():
    made = maker(DQN)().fit(DISCRETE, 0)
    learner, sampler = made.fit_.learner, made.fit_.sampler(DISCRETE)
    singles = [made.update(sampler.sample(step)) for step in range(5)]
    twin = maker(DQN)().fit(DISCRETE, 0)
    (epoch,) = list(twin.fitter(DISCRETE, 5, 5))
    for name in ("critic_loss", "td_error", "q_value"):
        assert epoch.metrics[f"train/{name}"] == pytest.approx(np.mean([s[name] for s in singles]), rel=1e-6)
    assert epoch.metrics["step"] == 5
    assert learner.read_metrics() == [{}]


def test_epochs_end_at_multiples_and_a_second_fit_goes_on():
    made = maker(DQN)()
    seen = [(epoch, metrics["step"]) for epoch, metrics in made.fitter(DISCRETE, 25, 10)]
    seen += [(epoch, metrics["step"]) for epoch, metrics in made.fitter(DISCRETE, 10, 10)]
    assert seen == [(1, 10), (2, 20), (3, 25), (3, 30), (4, 35)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"observation_scaler": "standart"}, "there is no such scaler; did you mean 'standard'"),
        ({"actor_encoder": {"hidden_unit": [3]}}, "no setting 'actor_encoder.hidden_unit'; did you mean 'hidden_units'"),
        ({"dtype": "float16"}, "dtype is 'float16'; choose 'float32' or 'float64'"),
        ({"device": "cuda:99"}, "There is no device 'cuda:99' here"),
        ({"device": 3.5}, "There is no device 3.5 here"),
    ],
)
def test_wrong_settings_end_in_one_sentence(settings, words):
    with pytest.raises(ConfigError, match=words) as caught:
        TD3PlusBC(**settings).fit(CONTINUOUS, 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("device", "there", "expected"),
    [
        (False, True, "cpu"),
        (False, False, "cpu"),
        (True, True, "meta"),
        (True, False, "There is no device True here: torch finds no accelerator."),
        (None, True, "meta"),
        (None, False, "cpu"),
    ],
)
def test_a_device_may_be_true_or_false_as_in_d3rlpy(monkeypatch, device, there, expected):
    """With `meta` in the place of an accelerator."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: there)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta") if there else None)
    try:
        found = str(pick_device(TD3PlusBC(device=device).device))
    except ConfigError as error:
        found = str(error)
    assert found == expected


def test_a_mac_trains_on_its_cpu(monkeypatch):
    """Apple's accelerator has no float64."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    assert pick_device(None).type == "cpu"
    with pytest.raises(ConfigError, match=r"^There is no device True here: torch finds no accelerator\.$"):
        pick_device(True)
    for named in ("mps", "mps:0", 0):
        with pytest.raises(ConfigError, match=r"^(The device 'mps' has no float64|There is no device 0 here)"):
            pick_device(named)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a device 0 here")
def test_device_0_is_not_false():
    with pytest.raises(ConfigError, match=r"^There is no device 0 here"):
        pick_device(0)


@pytest.mark.parametrize("online", [False, True])
def test_bounds_that_are_declared_set_the_scaler_of_actions(online: bool, caplog: pytest.LogCaptureFixture):
    from d3ray import Dataset
    from d3ray.algos.environments.make import make

    with make("Pendulum-v1") as vector:
        spec = vector.spec
    rng, ends = np.random.default_rng(0), np.eye(8, dtype=bool)[7]
    actions = rng.uniform(-2, 2, (8, 1)).astype("f4")
    bounded = Dataset.from_arrays(rng.normal(size=(8, 3)).astype("f4"), actions, np.ones(8, "f4"), ends, spec=spec, name="bounded")

    def fitted(**settings):
        made = maker(TD3, batch_size=4, **settings)()
        return made.fit_online("Pendulum-v1", n_steps=1) if online else made.fit(bounded, 3)

    bare = fitted()
    (line,) = [record.message for record in caplog.records]
    assert f"actions of {'Pendulum-v1' if online else 'bounded'!r} have bounds from -2 to 2: they are scaled by these" in line
    asked = fitted(action_scaler="min_max")
    assert len(caplog.records) == 1
    assert bare.fit_.config == asked.fit_.config
    seen = rng.normal(size=(8, 3)).astype("f4")
    np.testing.assert_array_equal(bare.predict(seen), asked.predict(seen))


def test_actions_beyond_bounds_that_can_be_reached_are_refused_alone(caplog: pytest.LogCaptureFixture):
    from d3ray import Dataset
    from d3ray.data.spec import Box, Spec

    spec = Spec(observation=Box(shape=(2,)), action=Box(shape=(1,), low=-1.0, high=1.0))
    actions = np.array([[-1.5], [1.5], [0], [1]], "f4")
    wide = Dataset.from_arrays(np.zeros((4, 2), "f4"), actions, np.zeros(4, "f4"), np.eye(4, dtype=bool)[3], spec=spec)
    with pytest.raises(DataError, match=r"actions of 'dataset' lie from -1.5 to 1.5: clip them before you import\.$"):
        maker(TD3)().fit(wide, 1)
    assert not caplog.records


def test_actions_out_of_reach_are_refused_and_the_scaler_helps():
    from d3ray import Dataset

    wide = Dataset.from_arrays(
        np.zeros((4, 2), "f4"), np.array([[-2], [2], [0], [1]], "f4"), np.zeros(4, "f4"), np.eye(4, dtype=bool)[3]
    )
    with pytest.raises(
        DataError, match=r"acts in \[-1, 1\], and actions of 'dataset' lie from -2 to 2: set action_scaler='min_max'"
    ):
        maker(TD3)().fit(wide, 1)
    made = maker(TD3, action_scaler="min_max", batch_size=4)().fit(wide, 3)
    assert np.abs(made.predict(np.zeros((5, 2), "f4"))).max() <= 2
    value = made.predict_value(np.zeros((2, 2), "f4"), np.array([[2.0], [2.0]]))
    nets = made.fit_.nets()
    torch.testing.assert_close(torch.tensor(value), nets.critic(torch.zeros(2, 2), torch.ones(2, 1)).mean(0).detach())
