"""Files that Ray's own classes write: RLlib's JsonWriter, states of its episodes, and Ray Data's Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d3ray.data.formats.registry import parts_of, read
from d3ray.platform.cluster.session import ray_session

pytestmark = pytest.mark.slow  # RLlib takes ten seconds to import


def test_what_json_writer_writes(tmp_path: Path) -> None:
    from ray.rllib.offline.json_writer import JsonWriter
    from ray.rllib.policy.sample_batch import SampleBatch

    seen = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    columns = {"obs": seen[:5], "new_obs": seen[1:], "actions": np.arange(5), "rewards": np.ones(5)}
    columns |= {"terminateds": np.arange(5) == 4, "truncateds": np.zeros(5, bool), "eps_id": np.full(5, 3), "t": np.arange(5)}
    writer = JsonWriter(str(tmp_path / "out"))
    for rows in ([3, 4], [0, 1, 2]):
        writer.write(SampleBatch({name: column[rows] for name, column in columns.items()}))
    writer.cur_file.close()
    (file,) = parts_of(tmp_path / "out")
    steps = read(file).steps
    assert (steps.steps.tolist(), steps.terminated.tolist(), steps.cuts) == ([5], [True], 0)
    np.testing.assert_array_equal(steps.columns["observation"], seen)


def test_states_of_episodes_that_were_cut_while_recorded(tmp_path: Path) -> None:
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    def encoded(value: Any) -> Any:  # as msgpack-numpy does
        whole = isinstance(value, np.ndarray)
        about = {b"kind": b"", b"shape": value.shape} if whole else {}
        return about | {b"nd": whole, b"type": value.dtype.str, b"data": value.tobytes()}

    env = gymnasium.make("CartPole-v1")
    states: list[bytes] = []
    seen: list[np.ndarray] = []
    for k in range(3):
        observation, info = env.reset(seed=k)
        episode = SingleAgentEpisode(observation_space=env.observation_space, action_space=env.action_space)
        episode.add_env_reset(observation, info)
        seen.append(observation)
        for t in range(9):
            action = env.action_space.sample()
            observation, reward, terminated, truncated, info = env.step(action)
            outputs = {"action_logp": np.float32(-0.7)}
            episode.add_env_step(
                observation, action, reward, info, terminated=terminated, truncated=truncated, extra_model_outputs=outputs
            )
            seen.append(observation)
            if t in (2, 5):
                states.append(msgpack.packb(episode.get_state(), default=encoded))
                episode = episode.cut(len_lookback_buffer=2)
        states.append(msgpack.packb(episode.get_state(), default=encoded))
    pq.write_table(pa.table({"item": states[::-1]}), tmp_path / "file.parquet")
    steps = read(tmp_path / "file.parquet").steps
    assert (steps.steps.tolist(), steps.cuts, steps.final_recorded.all()) == ([9, 9, 9], 0, True)
    backwards = np.concatenate([np.array(seen)[k : k + 10] for k in (20, 10, 0)])  # episodes by first appearance
    np.testing.assert_array_equal(steps.columns["observation"], backwards)


def test_parquet_of_ray_data(tmp_path: Path) -> None:
    import ray.data

    seen = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    rows = [
        {"obs": seen[k], "new_obs": seen[k + 1], "actions": np.float32([0.5]), "rewards": 1.0, "terminateds": k == 5, "eps_id": "a"}
        for k in range(6)
    ]
    with ray_session():
        ray.data.from_items(rows, override_num_blocks=2).write_parquet(str(tmp_path / "out"))
    steps = [read(part).steps for part in parts_of(tmp_path / "out")]
    assert [table.steps.tolist() for table in steps] == [[6]]
    np.testing.assert_array_equal(steps[0].columns["observation"], seen)
