"""CalQL's bounded gap against loops in NumPy, and training that goes on online."""

import math

import gymnasium
import numpy as np
import pytest

from d3ray.algos.actor_critic.cal_ql import CalQL
from d3ray.algos.actor_critic.cql import CQL
from d3ray.algos.testing import maker, tiny_dataset
from d3ray.data.errors import ConfigError

from ..loss_values import evaluate, networks, prepared
from .test_losses_cql import draws, small


@pytest.mark.parametrize("importance_sampling", [True, False])
def test_only_the_policys_values_are_bounded_by_the_return_to_go(importance_sampling):
    made, learner, batch = prepared(CalQL, n_action_samples=2, importance_sampling=importance_sampling, batch_size=12)
    full, batch = batch, small(batch)
    batch = batch.with_extra(return_to_go=full.extra["return_to_go"][:8])
    nets, run = evaluate(made, learner, batch, made.critic_loss)[2], networks(learner)
    shape = (2, *batch.action.shape)
    anywhere = 2 * nets.uniform("action anywhere", shape).numpy() - 1
    own = [
        draws(learner, nets, seen, name, shape)
        for seen, name in ((batch.observation, "action here"), (batch.next_observation, "action there"))
    ]
    expected, bounded = np.zeros((2, 8)), 0
    for member in range(2):
        for b in range(8):

            def value(action, member=member, b=b):
                return run("live", "critic", np.concatenate([batch.observation[b].numpy(), action]), member)[0]

            floor, data = batch.extra["return_to_go"][b].item(), value(batch.action[b].numpy())
            total = 0.0 if importance_sampling else math.exp(data)
            for k in range(2):
                total += math.exp(value(anywhere[k, b]) - (3 * math.log(0.5) if importance_sampling else 0.0))
                for actions, densities in own:
                    mine = value(actions[k, b])
                    bounded += mine < floor
                    total += math.exp(max(mine, floor) - (densities[k, b] if importance_sampling else 0.0))
            expected[member, b] = math.log(total) - data
    assert 0 < bounded < 2 * 8 * 4
    np.testing.assert_allclose(made.gap(nets, batch).detach().numpy(), expected, rtol=1e-9)


def test_returns_below_all_values_bound_nothing():
    made, learner, batch = prepared(CalQL)
    nets = evaluate(made, learner, batch, made.critic_loss)[2]
    low = batch.with_extra(return_to_go=batch.extra["return_to_go"] * 0 - 1e6)
    np.testing.assert_array_equal(made.gap(nets, low).detach(), CQL.gap(made, nets, low).detach())


def test_the_bound_is_in_the_units_of_scaled_rewards():
    data = tiny_dataset(discrete=False)
    plain, scaled = (
        maker(CalQL, **settings)(dtype="float64").fit(data, n_steps=0).fit_.sampler(data).sample(0)
        for settings in ({}, {"reward_scaler": {"name": "multiply", "multiplier": 3.0}})
    )
    np.testing.assert_allclose(scaled.extra["return_to_go"], 3 * plain.extra["return_to_go"], rtol=1e-12)


class Walk(gymnasium.Env):
    """Ten steps, cut; the reward is -1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (5,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return self.np_random.uniform(-1, 1, 5).astype("f4"), {}

    def step(self, action):
        self.left -= 1
        return self.np_random.uniform(-1, 1, 5).astype("f4"), -1.0, False, self.left == 0, {}


def test_it_goes_on_online_beside_its_data_and_learns_from_finished_episodes():
    data = tiny_dataset(discrete=False)
    made = maker(CalQL, endless=True)(seed=1).fit(data, n_steps=2)
    epoch = list(made.fitter_online(Walk, dataset=data, mixture=0.5, n_steps=4, n_steps_per_epoch=4, show_progress=False))[-1]
    assert epoch.metrics["train/environment_steps"] == 23  # 16 can be drawn after the second episode: steps 20, 21, 22, 23
    assert all(np.isfinite(value) for value in epoch.metrics.values())


def test_data_of_a_replay_buffer_alone_have_returns_too():
    made = maker(CalQL)(seed=1).fit_online(Walk, n_steps=2, n_steps_per_epoch=2, show_progress=False)
    assert made.step == 2


def test_an_endless_failure_has_no_return_at_gamma_1():
    data = tiny_dataset(discrete=False)
    maker(CalQL, gamma=1.0)().fit(data, n_steps=1)
    with pytest.raises(ConfigError, match="gamma is 1"):
        maker(CalQL, gamma=1.0, endless=True)().fit(data, n_steps=1)
