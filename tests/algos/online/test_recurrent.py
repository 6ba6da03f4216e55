"""DRQN online: the memory of each environment is let go where its episode ends, and runs go on bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from d3ray import DQN, ReplayBuffer
from d3ray.algos import testing
from d3ray.algos.environments.explorers import Greedy
from d3ray.algos.environments.make import make
from d3ray.algos.environments.rollout import Rollout
from d3ray.algos.online.run import OnlineRun
from d3ray.data.histories import Histories

SMALL: dict[str, Any] = {
    "encoder": {"name": "lstm", "units": 6, "encoder": {"hidden_units": [8]}},
    "sampler": {"name": "recurrent", "length": 5, "burn_in": 2},
    "batch_size": 4,
    "learning_rate": 1e-2,
    "target_update_interval": 10,
    "seed": 3,
}
ONLINE: dict[str, Any] = {"n_envs": 3, "random_steps": 5, "update_start_step": 12, "capacity": 300}


class Sign(gymnasium.Env[np.ndarray, int]):
    """A sign, then nothing for three steps; the fourth action is worth 1 where it says what the sign was, else -1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.sign, self.at = int(self.np_random.integers(2)), 0
        return np.array([2 * self.sign - 1], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.at += 1
        last = self.at == 4
        return np.zeros(1, np.float32), (1.0 if action == self.sign else -1.0) if last else 0.0, last, False, {}


def test_memories_are_let_go_where_episodes_end() -> None:
    made = DQN(**SMALL).fit_online("CartPole-v1", n_steps=2, n_steps_per_epoch=2, show_progress=False, **ONLINE)
    vector, policy = make("CartPole-v1", n=3, seed=7), made.policy()
    rollout = Rollout(vector, ReplayBuffer(1_000, vector.spec, 3), Greedy(), seed=0)
    alone: list[Any] = [policy.start(1) for _ in range(3)]
    ended = 0
    for _ in range(60):
        shown = vector.reset() if rollout.observation is None else rollout.observation
        if rollout.observation is None:
            rollout.observation, rollout._memory = shown, policy.start(3)
        before = [int(x) for x in rollout._length]
        for i in range(3):
            alone[i], _ = policy.step(alone[i], shown[i : i + 1])  # pyright: ignore[reportArgumentType]
        rollout.step(policy)
        over = [after == 0 for after in rollout._length]
        ended += sum(over)
        for i in range(3):
            if over[i]:
                alone[i] = policy.start(1)
            np.testing.assert_allclose(rollout._memory["state/critic"][i], alone[i]["state/critic"][0], atol=1e-6)
        assert len(before) == 3
    assert ended > 3


@pytest.mark.long
def test_it_learns_what_has_to_be_remembered_and_a_memoryless_one_does_not() -> None:
    online = {"n_envs": 4, "random_steps": 20, "update_start_step": 20, "explorer": {"name": "epsilon_greedy", "duration": 200}}
    fast = {"optimizer": "adam", "gamma": 0.9, "batch_size": 16, "sampler": {"name": "recurrent", "length": 4, "burn_in": 0}}

    def score(**settings: Any) -> float:
        made = DQN(**settings).fit_online(Sign, n_steps=400, n_steps_per_epoch=400, show_progress=False, **online)
        return float(np.mean(made.collect(Sign, n_episodes=60, seed=5).episodes.returns))  # pyright: ignore[reportAttributeAccessIssue]

    assert score(**{**SMALL, **fast, "encoder": {"name": "gru", "units": 16}}) == 1.0
    assert abs(score(**{**SMALL, **fast, "sampler": None, "encoder": {"hidden_units": [16]}})) < 0.5  # by chance 0, within four σ


@pytest.mark.parametrize("at", [7, 10])
def test_a_run_goes_on_bit_for_bit(at: int, tmp_path: Any) -> None:
    def begun() -> OnlineRun:
        return OnlineRun(DQN(**SMALL), "CartPole-v1", **ONLINE)

    with begun() as whole:
        list(whole.epochs(20, 10, show_progress=False))
        state = whole.algorithm.state()[0]
    with begun() as half:
        list(half.epochs(at, 10, show_progress=False))
        half.save(tmp_path / "run")
    with OnlineRun.load(tmp_path / "run", "CartPole-v1") as again:
        list(again.epochs(20 - at, 10, show_progress=False))
        name, gap = testing.largest_difference(again.algorithm.state()[0], state)
    assert gap == 0, name


def test_it_learns_from_data_and_buffer_together() -> None:
    data = make("CartPole-v1").spec
    played = DQN(**SMALL).build_with_env("CartPole-v1").collect("CartPole-v1", n_steps=200, seed=1)
    seen: list[Any] = []
    with OnlineRun(DQN(**SMALL), "CartPole-v1", dataset=played, mixture=0.5, **ONLINE) as run:  # pyright: ignore[reportArgumentType]
        list(run.epochs(10, 10, show_progress=False))
        batch = run._training.sample(10)
        seen.append(batch.observation)
    assert isinstance(seen[0], Histories)
    assert seen[0].mask.shape == (4, 5)
    assert data.discrete
