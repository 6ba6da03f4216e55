"""Scalers that follow what is seen while acting: their numbers, what networks see, checkpoints, and what is taken away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from d3ray import A2C, DQN, PPO, REINFORCE, load
from d3ray.algos.export.package import read_package
from d3ray.algos.export.packing import write_package
from d3ray.algos.online.run import OnlineRun
from d3ray.data.errors import ConfigError
from d3ray.data.scalers.base import merged

SMALL = {"hidden_units": [8], "activation": "tanh"}
BOTH: dict[str, Any] = {"policy_encoder": SMALL, "value_encoder": SMALL, "learning_rate": 0.1, "device": "cpu"}
PPO_: dict[str, Any] = {**BOTH, "update_interval": 40, "batch_size": 20, "n_passes": 1}
RUNNING: dict[str, Any] = {"observation_scaler": {"name": "running", "clip": 1.5}, "reward_scaler": "running", "gamma": 0.9}


class Paid(gymnasium.Wrapper):
    """A CartPole whose every step is paid by where the cart stands, and which remembers what it showed and paid."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.steps: list[tuple[np.ndarray, float, bool]] = []
        self.shown: Any = None

    def reset(self, **arguments: Any) -> Any:
        self.shown, info = super().reset(**arguments)
        return self.shown, info

    def step(self, action: Any) -> Any:
        before = self.shown
        self.shown, _, terminated, truncated, info = super().step(action)
        reward = float(np.float32(3 + 20 * self.shown[0]))
        self.steps.append((before, reward, terminated or truncated))
        return self.shown, reward, terminated, truncated, info


def test_merged_moments_are_those_of_all_rows() -> None:
    rows, moments = np.random.default_rng(0).normal(5, 3, (90, 4)), (0.0, np.zeros(4), np.ones(4))
    for part in np.split(rows, [1, 30, 31]):
        moments = merged(moments, part)
    n, mean, variance = moments
    assert n == 90
    np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(variance, rows.var(0), rtol=1e-12)


def test_its_numbers_are_those_of_all_that_was_shown_and_paid() -> None:
    env = Paid()
    ppo = PPO(**PPO_, **RUNNING).fit_online(env, n_steps=6, n_steps_per_epoch=6)  # three rollouts, two gradient steps each
    assert len(env.steps) == 120
    shown = np.stack([observation for observation, _, _ in env.steps]).astype(np.float64)
    scaler = ppo.config_.observation_scaler
    assert scaler.count == 120
    np.testing.assert_allclose(scaler.mean, shown.mean(0), rtol=1e-6)
    np.testing.assert_allclose(scaler.std, shown.std(0), rtol=1e-6)
    sums, paid = [], 0.0
    for _, reward, ended in env.steps:
        paid = 0.9 * paid + reward
        sums.append(paid)
        paid = 0.0 if ended else paid
    rewards = ppo.config_.reward_scaler
    assert (rewards.count, rewards.variance) == (120, pytest.approx(np.var(sums), rel=1e-6))


def test_networks_see_a_rollout_by_what_was_seen_with_it_and_estimates_are_of_the_policy_that_acted() -> None:
    ppo, env = PPO(**{**PPO_, "batch_size": 40}, **RUNNING, standardize_advantages=False), Paid()
    with OnlineRun(ppo, env) as run:
        while not run._due:
            run.act()
        nets, columns = ppo.fit_.nets(), run._training
        raw = torch.from_numpy(np.stack([observation for observation, _, _ in env.steps[:40]]))
        with torch.no_grad():  # nothing had been seen when the policy acted
            value = nets.value((raw / 1.01).clamp(-1.5, 1.5))
        batch = columns.sample(0)
        scaler = ppo.config_.observation_scaler
        mean, std = (torch.tensor(part) for part in (scaler.mean, scaler.std))
        order = batch.index
        seen = ((raw.double() - mean) / (std + 0.01)).clamp(-1.5, 1.5)[order].float()
        torch.testing.assert_close(batch.observation, seen, rtol=1e-5, atol=1e-6)
        assert (seen.abs() == 1.5).any()
        torch.testing.assert_close(batch.extra["value"], value[order], rtol=1e-5, atol=1e-6)
        paid = torch.tensor([reward for _, reward, _ in env.steps[:40]])[order]
        deviation = (ppo.config_.reward_scaler.variance + 1e-8) ** 0.5
        torch.testing.assert_close(batch.reward, (paid / deviation).clamp(-10, 10), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_a_run_goes_on_bit_for_bit(kind: Any, tmp_path: Path) -> None:
    settings = PPO_ if kind is PPO else {**BOTH, "update_interval": 20}
    arguments: dict[str, Any] = {"n_envs": 2, "n_steps_per_epoch": 3, "show_progress": False}
    whole = kind(**settings, **RUNNING).fit_online("CartPole-v1", n_steps=9, **arguments)
    again = {"checkpoint": tmp_path / "run", **arguments}
    kind(**settings, **RUNNING).fit_online("CartPole-v1", n_steps=9, **again, callbacks=[lambda *_: None])
    for newer in sorted((tmp_path / "run").glob("step-*"))[1:]:
        newer.rename(tmp_path / newer.name)
    resumed = kind(**settings, **RUNNING).fit_online("CartPole-v1", n_steps=9, resume=True, **again)
    assert whole.config_ == resumed.config_
    for name, tensor in whole.state()[0].items():
        assert torch.equal(tensor, resumed.state()[0][name]), name


def test_what_is_taken_away_scales_as_it_did_last(tmp_path: Path) -> None:
    ppo = PPO(**{**PPO_, "learning_rate": 0.01}, **RUNNING).fit_online("CartPole-v1", n_envs=2, n_steps=8, n_steps_per_epoch=8)
    observation = np.random.default_rng(0).normal(0, 3, (50, 4)).astype(np.float32)
    action = ppo.predict(observation)
    ppo.save(tmp_path / "saved")
    write_package(ppo, tmp_path / "package")
    np.testing.assert_array_equal(load(tmp_path / "saved").predict(observation), action)
    package = read_package(str(tmp_path / "package"))  # by onnxruntime
    np.testing.assert_array_equal(package.predict(observation), action)
    assert 0 < action.mean() < 1


def test_it_stops_where_it_is_told_to() -> None:
    scaler = {"name": "running", "until": 40}
    ppo = PPO(**PPO_, observation_scaler=scaler).fit_online("CartPole-v1", n_steps=6, n_steps_per_epoch=6)
    assert ppo.config_.observation_scaler.count == 40


def test_episodes_are_followed_too() -> None:
    settings: dict[str, Any] = {"policy_encoder": SMALL, "device": "cpu", **RUNNING}
    learned = REINFORCE(**settings).fit_online("CartPole-v1", n_envs=2, n_steps=3, n_steps_per_epoch=3)
    assert learned.config_.observation_scaler.count == learned.config_.reward_scaler.count > 20


@pytest.mark.parametrize("setting", ["observation_scaler", "reward_scaler"])
def test_it_is_of_algorithms_that_learn_from_rollouts(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting} 'running' is of algorithms that learn from rollouts.*say 'standard'"):
        DQN(**{setting: "running"}).check_settings()
