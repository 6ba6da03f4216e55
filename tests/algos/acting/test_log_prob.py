"""Densities of what stochastic policies do, against torch's own distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution

from d3ray import SAC, TD3, ReplayBuffer
from d3ray.algos.environments.explorers import PolicyDraws
from d3ray.algos.environments.make import make
from d3ray.algos.environments.rollout import Rollout
from d3ray.data.errors import ConfigError

SMALL = {"actor_encoder": {"hidden_units": (8,)}, "critic_encoder": {"hidden_units": (8,)}, "action_scaler": "min_max"}


def test_a_density_is_one_of_raw_actions() -> None:
    """Pendulum's go from -2 to 2: twice what the policy draws, so half as dense."""
    policy = SAC(seed=1, **SMALL).build_with_env("Pendulum-v1").policy()
    rng = np.random.default_rng(0)
    observation, action = rng.normal(size=(50, 3)).astype("f4"), rng.uniform(-1.9, 1.9, (50, 1)).astype("f4")
    mean, log_std = policy.module.networks["policy"].parameters_at(torch.as_tensor(observation))
    drawn = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform(), AffineTransform(0.0, 2.0)])
    expected = drawn.log_prob(torch.as_tensor(action)).sum(-1).detach().numpy()
    np.testing.assert_allclose(policy.log_prob(observation, action), expected, rtol=1e-4, atol=1e-4)
    grid = np.linspace(-1.999, 1.999, 4001, dtype="f4")[:, None]
    densities = np.exp(policy.log_prob(np.repeat(observation[:1], 4001, 0), grid))
    assert np.trapezoid(densities, grid[:, 0]) == pytest.approx(1, abs=5e-3)


def test_a_policy_that_draws_nothing_has_none() -> None:
    policy = TD3(**SMALL).build_with_env("Pendulum-v1").policy()
    with pytest.raises(ConfigError, match="TD3 is deterministic, so its actions have no density"):
        policy.log_prob(np.zeros((1, 3), "f4"), np.zeros((1, 1), "f4"))


def test_a_rollout_records_what_it_is_told_before_each_step() -> None:
    algorithm = SAC(seed=1, **SMALL).build_with_env("Pendulum-v1")
    with make("Pendulum-v1", n=2, seed=3) as vector:
        buffer = ReplayBuffer(100, vector.spec, 2, extra={"angle": (), "random": ()})

        def record(vector, policy, observation, action):
            angles = [environment.unwrapped.state[0] for environment in vector.environments]
            return {"angle": np.cos(angles), "random": np.full(2, float(policy is None))}

        rollout = Rollout(vector, buffer, PolicyDraws(), seed=3, random_steps=4, record=record)
        for _ in range(10):
            rollout.step(algorithm.policy())
    columns = {name: column.reshape(2, 50, *column.shape[1:])[:, :10] for name, column in buffer.columns.items()}
    np.testing.assert_allclose(columns["angle"], columns["observation"][:, :, 0], atol=1e-6)
    assert columns["random"].tolist() == [[1.0] * 4 + [0.0] * 6] * 2
