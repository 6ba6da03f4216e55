"""PFRL's way of training: the caller has the environment, and what is learned is what `fit_online` learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from d3ray import DQN, PPO, SAC
from d3ray.algos.environments.make import make
from d3ray.algos.environments.vector import VectorEnvironment, rows_of
from d3ray.data.errors import ConfigError, DataError
from d3ray.pfrl import Agent

SMALL = {"hidden_units": [8]}
CASES: dict[str, tuple[str, Any, dict[str, Any], int]] = {
    "dqn": (
        "CartPole-v1",
        lambda: DQN(batch_size=8, learning_rate=0.1, encoder=SMALL, seed=1, device="cpu"),
        {"explorer": {"name": "epsilon_greedy", "duration": 20}, "capacity": 100, "update_interval": 2},
        40,
    ),
    "sac": (
        "Pendulum-v1",
        lambda: SAC(batch_size=8, action_scaler="min_max", actor_encoder=SMALL, critic_encoder=SMALL, seed=1, device="cpu"),
        {"random_steps": 5},
        25,
    ),
    "ppo": (
        "CartPole-v1",
        lambda: PPO(
            update_interval=40,
            batch_size=20,
            n_passes=2,
            learning_rate=0.1,
            policy_encoder=SMALL,
            value_encoder=SMALL,
            device="cpu",
        ),
        {},
        16,
    ),
}


def told(agent: Agent, vector: VectorEnvironment, n_steps: int) -> None:
    """The caller's loop, as a PFRL script writes it."""
    obs = vector.reset()
    while agent.algorithm.step < n_steps:
        result = vector.step(np.asarray(agent.batch_act(list(obs))))
        agent.batch_observe(list(result.observation), result.reward, result.terminated, result.truncated)
        ended = np.flatnonzero(result.ended)
        obs = vector.reset(ended) if len(ended) else result.observation


@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize("case", CASES)
def test_what_it_learns_is_what_fit_online_learns(case: str, n_envs: int) -> None:
    environment, made, settings, n_steps = CASES[case]
    with make(environment, n=n_envs, seed=5) as vector:
        fitted = made().fit_online(vector, n_steps=n_steps, n_steps_per_epoch=n_steps, show_progress=False, **settings)
    with make(environment, n=n_envs, seed=5) as vector:
        agent = Agent(made(), vector.single, n_envs, **settings)
        told(agent, vector, n_steps)
    theirs, ours = fitted.state()[0], agent.algorithm.state()[0]
    assert [name for name in theirs if not torch.equal(theirs[name], ours[name])] == []


def test_one_environment_at_a_time() -> None:
    """`act` and `observe` are the batched calls with one row, and actions are the environment's own."""
    env, agent = gymnasium.make("CartPole-v1"), Agent(CASES["dqn"][1](), gymnasium.make("CartPole-v1"), update_interval=2)
    obs, _ = env.reset(seed=0)
    for _ in range(60):
        action = agent.act(obs)
        assert env.action_space.contains(action)
        obs, reward, terminated, truncated, _ = env.step(action)
        agent.observe(obs, float(reward), terminated, truncated)
        if terminated or truncated:
            obs, _ = env.reset()
    assert agent.t == 60
    assert agent.algorithm.step > 10
    statistics = dict(agent.get_statistics())
    assert statistics["n_updates"] == agent.algorithm.step
    assert statistics["average_loss"] == statistics["train/critic_loss"]


def test_evaluation_is_greedy_and_teaches_nothing() -> None:
    env, agent = gymnasium.make("CartPole-v1"), Agent(CASES["ppo"][1](), gymnasium.make("CartPole-v1"))
    with make("CartPole-v1", seed=1) as vector:
        told(agent, vector, 8)
    before, step = agent.algorithm.state()[0], agent.algorithm.step
    obs, _ = env.reset(seed=3)
    with agent.eval_mode():
        for _ in range(30):
            action = agent.act(obs)
            assert action == agent.algorithm.predict(obs[None])[0]
            obs, reward, terminated, truncated, _ = env.step(action)
            agent.observe(obs, float(reward), terminated, truncated)
            obs = env.reset()[0] if terminated or truncated else obs
    assert agent.training
    assert agent.algorithm.step == step
    after = agent.algorithm.state()[0]
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_an_episode_that_is_stopped_is_cut() -> None:
    env = gymnasium.make("CartPole-v1")
    agent = Agent(CASES["dqn"][1](), env, update_start_step=100)
    obs, _ = env.reset(seed=0)
    for _ in range(3):
        obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
        agent.observe(obs, float(reward), terminated, truncated)
    agent.stop_episode()
    columns = agent._run.buffer.columns
    assert columns["truncated"][:3].tolist() == [False, False, True]
    assert columns["closing"][3]
    np.testing.assert_array_equal(columns["observation"][3], obs)
    first, _ = env.reset(seed=1)
    agent.act(first)
    np.testing.assert_array_equal(agent._run.rollout.observation[0], first)


def test_what_is_kept_goes_on(tmp_path: Path) -> None:
    with make("CartPole-v1", seed=1) as vector:
        agent = Agent(CASES["ppo"][1](), vector.single)
        told(agent, vector, 8)
        agent.save(tmp_path / "kept")
        agent.save(tmp_path / "kept")
        other = Agent(CASES["ppo"][1](), vector.single)
        other.load(tmp_path / "kept")
        obs = rows_of(vector.reset(), slice(None))
        with agent.eval_mode(), other.eval_mode():
            assert agent.batch_act(obs) == other.batch_act(obs)
        live = agent.algorithm.fit_.learner.live["policy"], other.algorithm.fit_.learner.live["policy"]
        assert all(torch.equal(live[0][name], live[1][name]) for name in live[0])
        with pytest.raises(ConfigError, match="holds a PPO, and the agent is a DQN"):
            Agent(CASES["dqn"][1](), vector.single).load(tmp_path / "kept")


def test_what_cannot_be_told_is_refused() -> None:
    env = gymnasium.make("CartPole-v1")
    agent, obs = Agent(CASES["dqn"][1](), env, 2), np.zeros(4, np.float32)
    with pytest.raises(ConfigError, match="int has no observation_space"):
        Agent(CASES["dqn"][1](), 3)
    with pytest.raises(DataError, match="observe was called before act"):
        agent.batch_observe([obs, obs], [0, 0], [False, False], [False, False])
    with pytest.raises(DataError, match="3 observations were given, and the agent acts in 2 environments"):
        agent.batch_act([obs] * 3)
    with pytest.raises(DataError, match="An observation is NaN"):
        agent.batch_act([obs, np.full(4, np.nan, np.float32)])
    with pytest.raises(DataError, match="shape"):
        agent.batch_act([obs, np.zeros(5, np.float32)])
    agent.batch_act([obs, obs])
    with pytest.raises(DataError, match="act was called twice"):
        agent.batch_act([obs, obs])
    with pytest.raises(DataError, match="1 rewards were given"):
        agent.batch_observe([obs, obs], [0.0], [False, False], [False, False])
    with pytest.raises(DataError, match="The reward of environment 1 is nan"):
        agent.batch_observe([obs, obs], [0.0, np.nan], [False, False], [False, False])
