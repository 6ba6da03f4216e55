"""Which replay buffers online training takes, and what else they remember."""

from __future__ import annotations

import numpy as np
import pytest

from d3ray import DQN, ReplayBuffer
from d3ray.algos.environments.make import make
from d3ray.algos.online.run import OnlineRun
from d3ray.data.errors import ConfigError
from d3ray.data.replay import (
    EpisodicReplayBuffer,
    PersistentEpisodicReplayBuffer,
    PersistentReplayBuffer,
    PrioritizedEpisodicReplayBuffer,
    PrioritizedReplayBuffer,
)


def dqn(**settings):
    return DQN(**{"encoder": {"hidden_units": (16, 16)}, "batch_size": 16, "seed": 3, **settings})


def test_a_buffer_that_draws_otherwise_than_training_does_is_refused(tmp_path):
    spec = make("CartPole-v1").spec
    with pytest.raises(ConfigError, match=r"the priorities of a PrioritizedReplayBuffer: .* sampler='prioritized'"):
        dqn().fit_online("CartPole-v1", PrioritizedReplayBuffer(100, spec, alpha=0.7), n_steps=1)
    on_disk = PersistentEpisodicReplayBuffer(tmp_path / "a", 100, spec), PersistentReplayBuffer(tmp_path / "b", 100, spec)
    for episodic in (EpisodicReplayBuffer(100, spec), PrioritizedEpisodicReplayBuffer(100, spec), on_disk[0]):
        with pytest.raises(ConfigError, match=f"A {type(episodic).__name__} is one to draw episodes from, .*: give a ReplayBuffer"):
            dqn().fit_online("CartPole-v1", episodic, n_steps=1)
    dqn(sampler="prioritized").fit_online("CartPole-v1", on_disk[1], n_steps=1)
    for buffer in on_disk:
        buffer.close()


def test_a_run_with_extra_columns_is_loaded_with_what_records_them(tmp_path):
    def record(vector, policy, observation, action):
        return {"angle": observation[:, 2], "shown": np.stack([action, action + 1], -1)}

    def buffer():
        return ReplayBuffer(200, make("CartPole-v1").spec, 2, extra={"angle": (), "shown": (2,)})

    with OnlineRun(dqn(), "CartPole-v1", buffer(), n_envs=2, record=record) as run:
        list(run.epochs(20, 20))
        run.save(tmp_path / "run")
        with OnlineRun.load(tmp_path / "run", "CartPole-v1", buffer(), record=record) as again:
            list(again.epochs(20, 20))
        list(run.epochs(20, 20))
    assert run.buffer.columns["shown"].any()
    for name, array in run.buffer.state().items():
        np.testing.assert_array_equal(again.buffer.state()[name], array, err_msg=name)
