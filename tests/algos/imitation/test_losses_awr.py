"""AWR's returns, losses and phases against loops in NumPy over whole episodes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from d3ray.algos.imitation.awr import AWR
from d3ray.algos.stack import Stack
from d3ray.algos.testing import maker, tiny_arrays, tiny_dataset
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.sampling import TransitionSampler

from .. import slow_losses as slow
from ..actor_critic.test_losses_cal_ql import Walk
from ..loss_values import evaluate, networks, prepared


def episode_of(data, index):
    """Rewards, observations with the final one, and whether it terminated, from a transition on."""
    ends = np.cumsum(data.episodes.steps)
    e = int(np.searchsorted(ends, index, side="right"))
    steps, first = int(data.episodes.steps[e]), int(data.episodes.first_row[e])
    at = index - int(ends[e]) + steps
    rows = slice(first + at, first + steps)
    seen = data.columns["observation"][first + at : first + steps + 1]
    return data.columns["reward"][rows].astype(float), seen, bool(data.episodes.terminated[e])


@pytest.mark.parametrize(("horizon", "lam"), [(2, 0.7), (40, 0.7), (40, 1.0), (3, 0.0)])
@pytest.mark.parametrize("kind", ["live", "target"])
def test_returns_are_those_of_the_recursion(horizon, lam, kind):
    """Also where an episode ends, by a terminal or a cut, before the horizon."""
    made, learner, batch = prepared(AWR, horizon=horizon, lam=lam, value_scale=3.0, gamma=0.9)
    data, run = tiny_dataset(discrete=False), networks(learner)
    loss, _, nets = evaluate(made, learner, batch, made.value_loss)
    value_net = nets.value if kind == "live" else nets.target.value
    found = made.returns(value_net, batch, learner._h).numpy()

    def value(seen):
        return 3.0 * run(kind, "value", seen)[0]

    reached = set()
    for i, index in enumerate(batch.index.tolist()):
        rewards, seen, terminated = episode_of(data, index)
        n = min(len(rewards), horizon + 1)  # the first step, and as many as the horizon after it
        ended = terminated and n == len(rewards)
        reached.add((ended, n < len(rewards)))
        assert found[i] == pytest.approx(slow.lambda_return(value, rewards[:n], seen[: n + 1], ended, 0.9, lam), rel=1e-9)
    assert len(reached) == (2 if horizon == 40 else 3)
    if kind == "target":  # which is what the value is regressed to
        values = [3.0 * run("live", "value", seen)[0] for seen in batch.observation.numpy()]
        np.testing.assert_allclose(loss, ((found - values) / 3.0) ** 2, rtol=1e-9)


def test_monte_carlo_returns_are_the_datas():
    made, learner, batch = prepared(AWR, horizon=None, gamma=0.9, reward_scaler={"name": "multiply", "multiplier": 2.0})
    data = tiny_dataset(discrete=False)
    assert set(batch.extra) == {"return_to_go"}
    loss, _, nets = evaluate(made, learner, batch, made.value_loss)
    run = networks(learner)
    for i, index in enumerate(batch.index.tolist()):
        rewards, _, _ = episode_of(data, index)
        total = sum(0.9**k * 2 * reward for k, reward in enumerate(rewards))
        error = total - 100 * run("live", "value", batch.observation[i].numpy())[0]
        assert loss[i] == pytest.approx((error / 100) ** 2, rel=1e-9)
    assert torch.equal(made.returns(nets.value, batch, learner._h), batch.extra["return_to_go"])


@pytest.mark.parametrize("normalize", [True, False])
def test_the_actor_weighs_the_data_by_its_advantages(normalize):
    settings = {"normalize_advantages": normalize, "beta": 0.5, "max_weight": 1.5, "action_std": 0.3, "value_scale": 2.0}
    made, learner, batch = prepared(AWR, horizon=4, **settings)
    loss, metrics, nets = evaluate(made, learner, batch, made.actor_loss)
    run, returns = networks(learner), made.returns(nets.value, batch, learner._h).numpy()
    advantages = np.array([returns[i] - 2 * run("live", "value", seen)[0] for i, seen in enumerate(batch.observation.numpy())])
    weights = slow.weights(torch.from_numpy(advantages), 0.5, 1.5, normalize).numpy()
    assert weights.min() < 1.5 == weights.max()
    for i, seen in enumerate(batch.observation.numpy()):
        mean, action = np.tanh(run("live", "policy", seen)), batch.action[i]
        log_prob = slow.normal(torch.from_numpy(mean), torch.full_like(action, 0.3).log(), action).item()
        assert loss[i] == pytest.approx(-weights[i] * log_prob, rel=1e-9)
    np.testing.assert_allclose(metrics["weight"], weights, rtol=1e-9)


def test_phases_alternate_and_returns_are_of_the_values_before():
    made = AWR(n_value_updates=2, n_actor_updates=3, batch_size=16, seed=1)
    data = tiny_dataset(discrete=False)
    made.fit(data, n_steps=0)
    kinds = [made.schedule(step) for step in range(7)]
    value, actor = ("evaluate",), ("actor",)
    assert kinds == [("value_phase", *value), value, actor, actor, actor, ("value_phase", *value), value]
    learner = made.fit_.learner
    told = {name: [] for name in ("live", "target", "policy")}
    for _ in range(7):
        made.fit(data, n_steps=1)
        state = learner.state()
        for name, key in (
            ("live", "live/value/head.bias"),
            ("target", "target/value/head.bias"),
            ("policy", "live/policy/head.bias"),
        ):
            told[name].append(state[key].sum().item())
    assert told["target"][0] == told["target"][4] != told["target"][5] == told["live"][4]
    assert told["live"][1] == told["live"][4] != told["live"][0]
    assert told["policy"][1] != told["policy"][2] != told["policy"][4] == told["policy"][6]


def test_coefficients_that_are_written_in_place_count_at_once():
    """As for a trial that goes on with the learner of another one."""
    made, _, batch = prepared(AWR, value_scale=2.0)
    seen, action = batch.observation.numpy(), batch.action.numpy()
    value, learner = made.predict_value(seen, action), made.fit_.learner
    learner.set_hyper("value_scale", [6.0])
    np.testing.assert_allclose(made.predict_value(seen, action), 3 * value, rtol=1e-9)
    learner.set_hyper("action_std", [1e-6])
    np.testing.assert_allclose(made.sample_action(seen), made.predict(seen), atol=1e-4)


def test_its_policy_has_the_density_of_a_normal():
    """Of its own deviation; draws are cut off at ±1, and densities are the normal's own, as of `Gaussian`."""
    make, dataset = maker(AWR), tiny_dataset(discrete=False, reach=2.0)
    stack = Stack(make(dtype="float64", action_scaler="min_max"), (3, 4), [{}, {"action_std": 0.25}]).fit(dataset, 3, 3)
    made, seen, action = stack.seed(1), dataset.columns["observation"][:8], dataset.columns["action"][:8]
    low, high = dataset.columns["action"].min(0), dataset.columns["action"].max(0)
    half = (high - low) / 2
    error = (action - made.predict(seen)) / half
    expected = (-0.5 * (error / 0.25) ** 2 - np.log(0.25 * np.sqrt(2 * np.pi)) - np.log(half)).sum(-1)
    np.testing.assert_allclose(made.policy().log_prob(seen, action), expected, rtol=1e-4)


@pytest.mark.parametrize("preset", [None, "d3rlpy-2020"])
def test_images_get_convolutions(preset):
    made = AWR() if preset is None else AWR.from_preset(preset)
    made.build_with_shapes((3, 84, 84), 2)
    encoders = [made.fit_.learner.modules[name].encoder for name in ("policy", "value")]
    assert [type(encoder).__name__ for encoder in encoders] == ["PixelNetwork"] * 2
    states = AWR.from_preset("paper", observation_scaler=None).build_with_shapes((5,), 2).state()[0]
    assert [tuple(states[f"live/{name}/head.weight"].shape) for name in ("policy", "value")] == [(64, 2), (64, 1)]


@pytest.mark.parametrize(("horizon", "drawable"), [(None, 40), (3, 32)])
def test_monte_carlo_returns_need_no_next_observation(horizon, drawable):
    """Steps in episodes of five that were cut, what followed them unknown: those at the cut have returns too."""
    arrays = tiny_arrays(False, 40)
    cut = {"terminated": np.zeros(40, bool), "truncated": np.arange(40) % 5 == 4, "final_observations": None}
    data = Dataset.from_arrays(**{**arrays, **cut})
    made = maker(AWR, horizon=horizon)(seed=1).fit(data, n_steps=3)
    assert made.fit_.sampler(data).n_windows == drawable
    batch = replace(made.fit_.sampler(data).sample(3), next_observation=None)
    if horizon is None:
        assert np.isfinite(made.update(batch)["actor_loss"])
    else:
        with pytest.raises(DataError, match="The batch lacks next_observation"):
            made.update(batch)
    again = maker(AWR)().load_state(*made.state())  # its own setting says otherwise
    assert again.wants_.following is (horizon is not None)


def test_it_learns_online_from_whole_episodes():
    made = maker(AWR, horizon=4)(seed=1).fit_online(Walk, n_steps=6, n_steps_per_epoch=6, show_progress=False)
    assert made.step == 6
    assert np.isfinite(made.predict_value(np.zeros((2, 5), "f4"), np.zeros((2, 3), "f4"))).all()


@pytest.mark.long
def test_a_tiny_problem_is_solved():
    """The reward is -(a - 0.5)²; actions of the data are uniform. A policy that cloned them would stay at 0."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (2000, 1)).astype("f4")
    rewards = -10 * (actions[:, 0] - 0.5) ** 2
    data = Dataset.from_arrays(np.ones((2000, 1), "f4"), actions, rewards, np.ones(2000, bool), np.zeros(2000, bool))
    made = AWR(
        n_value_updates=50,
        n_actor_updates=150,
        actor_optimizer="adam",
        value_optimizer="adam",
        actor_learning_rate=3e-3,
        value_learning_rate=3e-3,
        value_scale=10.0,
        beta=0.3,
        horizon=1,
    ).fit(data, n_steps=400, n_steps_per_epoch=400)
    assert abs(made.predict(np.ones((1, 1), "f4"))[0, 0] - 0.5) < 0.15
    assert made.predict_value(np.ones((1, 1), "f4"), np.zeros((1, 1), "f4"))[0] == pytest.approx(rewards.mean(), abs=0.5)


def test_discrete_actions_are_refused():
    with pytest.raises(DataError, match="continuous"):
        AWR().fit(tiny_dataset(discrete=True), n_steps=1)


def test_priorities_are_refused_before_any_work():
    with pytest.raises(
        ConfigError, match="AWR has no TD error for sampler 'prioritized' to draw by: choose uniform, epoch or weigh"
    ):
        AWR(sampler="prioritized").build_with_dataset(tiny_dataset(discrete=False))


def test_a_batch_without_what_lies_ahead_is_refused():
    data = tiny_dataset(discrete=False)
    trained = AWR(horizon=3, batch_size=8, device="cpu").fit(data, n_steps=1)
    batch = TransitionSampler(data, 8, ahead=3).sample(0)
    trained.update(batch)
    without = replace(batch, extra={})
    with pytest.raises(DataError, match="The batch lacks extra/ahead/reward; what was fitted takes observation"):
        trained.update(without)
