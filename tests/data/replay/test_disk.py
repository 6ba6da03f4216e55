"""Buffers on disk are there again after any end of the process, whole rows only; saved ones draw the same after loading."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d3ray.data.errors import ConfigError, DataError, StorageError
from d3ray.data.replay import (
    EpisodicReplayBuffer,
    PersistentEpisodicReplayBuffer,
    PersistentReplayBuffer,
    PrioritizedEpisodicReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
)
from d3ray.data.spec import Box, Spec

from ..sampling.slow_experience import SPEC, Story, as_buffer, stories

WIDE = Spec(observation=Box(shape=(300,)), action=Box(shape=(2,)))

# Writes rows until it is killed. Every number of row k is k, and after each row that is there it says so.
WRITER = """
import sys, numpy as np
from d3ray.data.replay import PersistentReplayBuffer
buffer = PersistentReplayBuffer(sys.argv[1])
k = int(sys.argv[2])
print("ready", flush=True)
while True:
    row, end = np.full(300, k, np.float32), k % 7 == 6
    buffer.add(row, row[:2], k, end and k % 2, end, row + 0.5 if k % 3 else None)
    k += 1
    print(k, flush=True)
"""


# Makes a buffer where a file may have no more than 1 MB, with the system's call that reserves room or without.
CRAMPED = """
import os, resource, sys
from d3ray.data.errors import StorageError
from d3ray.data.replay import PersistentReplayBuffer
from d3ray.data.spec import Box, Spec
if sys.argv[2] == "without":
    del os.posix_fallocate
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    PersistentReplayBuffer(sys.argv[1], 4000, Spec(observation=Box(shape=(300,)), action=Box(shape=(2,))))
except StorageError as error:
    print(error)
"""
FALLOCATE = [
    pytest.param("with", marks=pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system has no such call")),
    "without",
]


def check_rows(buffer: ReplayBuffer, first_unknown: int) -> int:
    """Every row that is there is whole and in its place; gives the number of the next one."""
    dataset, following = buffer.to_dataset(), None
    for episode in dataset.episodes:
        for t in range(len(episode)):
            k = int(episode.rewards[t])
            assert (episode.observations[t] == k).all()
            assert (episode.actions[t] == k).all()
            assert following is None or k == following
            assert k % 7 == (int(episode.rewards[0]) % 7) + t
            following = k + 1
        k = int(episode.rewards[-1])
        ended = k % 7 == 6
        assert episode.terminated == (ended and k % 2 == 1)
        assert (episode.observations[-1] == (k + 0.5 if episode.final_recorded else k)).all()
    assert following is not None
    assert following >= first_unknown  # what append returned from is there
    return following


@pytest.mark.long
@pytest.mark.parametrize("capacity", [64, pytest.param(4000, marks=pytest.mark.slow)])  # full soon, and never
def test_a_buffer_on_disk_survives_sigkill_at_any_moment(tmp_path: Path, capacity: int) -> None:
    PersistentReplayBuffer(tmp_path / "buffer", capacity, WIDE).close()
    begin = 0
    rng = np.random.default_rng(capacity)
    for _ in range(6):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "buffer"), str(begin)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(float(rng.uniform(0.02, 0.12)))
            os.kill(writer.pid, signal.SIGKILL)
            told = [int(line) for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        assert writer.returncode == -signal.SIGKILL
        buffer = PersistentReplayBuffer(tmp_path / "buffer")
        begin = check_rows(buffer, told[-1] if told else begin) if buffer.n_transitions else 0
        assert begin - (told[-1] if told else begin) <= 1
        if buffer.n_windows():
            batch = buffer.sample(64, 1)
            assert (batch.observation[:, 0] == batch.reward).all()
            ahead = (batch.next_observation[:, 0] - batch.reward)[batch.discount > 0]
            assert ((ahead == 0.5) | (ahead == 1)).all()
        buffer.close()
    assert begin > 100


@pytest.mark.parametrize("call", FALLOCATE)
def test_all_room_is_taken_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    if call == "without":
        monkeypatch.delattr(os, "posix_fallocate", raising=False)  # as on macOS
    buffer = PersistentReplayBuffer(tmp_path / "buffer", 4000, WIDE)  # observations of 4.8 MB
    files = [path.stat() for path in (tmp_path / "buffer").glob("*.raw")]
    assert max(about.st_size for about in files) == 4000 * 300 * 4
    assert all(about.st_blocks * 512 >= about.st_size for about in files)
    buffer.add(np.ones(300), np.ones(2), 1.0, terminated=False)
    assert buffer.n_transitions == 1
    buffer.close()


@pytest.mark.long
@pytest.mark.parametrize("call", FALLOCATE)
def test_no_room_is_one_sentence(tmp_path: Path, call: str) -> None:
    command = [sys.executable, "-c", CRAMPED, str(tmp_path / "buffer"), call]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("cannot be written: the file would be larger than is allowed here.\n"), done.stdout


def test_every_moment_of_a_write_leaves_whole_rows(tmp_path: Path) -> None:
    """The folder is copied after each store into it, as a process that was killed there would have left it."""
    import shutil

    from d3ray.data.replay import rings as module

    moments: list[Path] = []

    class Watched(dict):  # the columns as `write` sees them, one after the other
        def items(self) -> Any:
            for name, column in super().items():
                snapshot()
                yield name, column

    def snapshot() -> None:
        moments.append(tmp_path / f"moment{len(moments)}")
        shutil.copytree(tmp_path / "buffer", moments[-1], ignore=shutil.ignore_patterns("lock"))

    buffer = PersistentReplayBuffer(tmp_path / "buffer", 6, SPEC)
    assert isinstance(buffer._rings, module.Rings)
    buffer._rings.columns = Watched(buffer._rings.columns)
    seen = []
    for k in range(14):
        end = k % 4 == 3
        row = np.full(1, k, np.float32)
        buffer.add(row, row, k, end and k < 8, end, row + 0.5)
        seen.append(len(moments))
    for number, moment in enumerate(moments):
        k = next(k for k, count in enumerate(seen) if number < count)  # it was written when this was taken
        again = PersistentReplayBuffer(moment)
        if again.n_transitions:
            rewards = again.to_dataset().columns["reward"][~again.to_dataset().columns["closing"]]
            assert rewards.tolist() == list(range(int(rewards[0]), int(rewards[0]) + len(rewards)))
            assert rewards[-1] in (k - 1, k)
            steps = ~again.to_dataset().columns["closing"]
            assert (again.to_dataset().columns["observation"][steps, 0] == rewards).all()
        ended = (
            again.n_transitions > 0 and again.to_dataset().columns["reward"][~again.to_dataset().columns["closing"]][-1] % 4 == 3
        )
        again.add(np.full(1, 99.0), np.full(1, 99.0), 99.0)
        if ended:  # what was killed before its closing row does not go on
            assert again.to_dataset().episodes[-1].rewards.tolist() == [99]
        again.close()
    assert len(moments) > 50


def test_a_folder_is_opened_as_what_it_is(tmp_path: Path) -> None:
    buffer = PersistentReplayBuffer(tmp_path / "a", 21, SPEC, 2, extra={"log_prob": ()})
    for k in range(30):
        for env in range(2):
            buffer.add([k], [k], k, k % 5 == 4, False, [k + 0.5], env, log_prob=k / 10)
    with pytest.raises(StorageError, match="in use by another process"):
        PersistentReplayBuffer(tmp_path / "a")
    expected = {name: array.copy() for name, array in buffer.state().items()}
    buffer.flush()
    buffer.close()
    for open_again in (
        lambda: PersistentReplayBuffer(tmp_path / "a", 20, SPEC, 2),
        lambda: PersistentEpisodicReplayBuffer(tmp_path / "b", ancestor=tmp_path / "a"),
    ):
        again = open_again()
        assert (again.capacity, again.spec, again.n_envs, again.extra) == (20, SPEC, 2, {"log_prob": ()})
        for name, array in again.state().items():
            assert (array == expected[name]).all(), name
        again.close()
    assert not (tmp_path / "b").exists()
    with pytest.raises(DataError, match="another capacity: it was made with 20"):
        PersistentReplayBuffer(tmp_path / "a", 40, SPEC, 2)
    with pytest.raises(ConfigError, match="needs its capacity and spec"):
        PersistentReplayBuffer(tmp_path / "c", 40)
    with pytest.raises(StorageError, match="There is no replay buffer in"):
        PersistentReplayBuffer(tmp_path / "c", ancestor=tmp_path / "nothing")
    with (tmp_path / "a" / "reward.raw").open("r+b") as file:
        file.truncate(5)
    with pytest.raises(DataError, match=r"reward.raw has 5 bytes; 80 are needed"):
        PersistentReplayBuffer(tmp_path / "a")
    (tmp_path / "a" / "buffer.json").write_text(json.dumps({"version": 9}))
    with pytest.raises(DataError, match="version 9"):
        PersistentReplayBuffer(tmp_path / "a")
    (tmp_path / "a" / "buffer.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        PersistentReplayBuffer(tmp_path / "a")


@settings(max_examples=25, deadline=None)
@given(stories(6, 6), st.integers(2, 20))
def test_a_saved_buffer_is_the_same_after_loading(tmp_path_factory: pytest.TempPathFactory, told: list[Story], rows: int) -> None:
    path = tmp_path_factory.mktemp("saved") / "buffer.npz"
    buffer = as_buffer(told, rows).buffer
    buffer.save(path)
    again = ReplayBuffer.load(path)
    assert (again.n_transitions, again.n_episodes) == (buffer.n_transitions, buffer.n_episodes)
    for name, array in again.state().items():
        assert (array == buffer.state()[name]).all(), name
    assert [p.name for p in path.parent.iterdir()] == ["buffer.npz"]


def test_what_is_no_saved_buffer_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no saved replay buffer at"):
        ReplayBuffer.load(tmp_path / "nothing.npz")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(DataError, match="is no saved replay buffer, or a damaged one"):
        ReplayBuffer.load(tmp_path / "text")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(DataError, match="is no saved replay buffer"):
        ReplayBuffer.load(tmp_path / "other.npz")
    as_buffer([Story(0, 3, "terminated")], 5).buffer.save(tmp_path / "good.npz")
    whole = (tmp_path / "good.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is no saved replay buffer"):
        ReplayBuffer.load(tmp_path / "half.npz")


# ---- the six names


def fill(buffer: ReplayBuffer) -> None:
    for k in range(12):
        buffer.add([float(k)], [0.0], float(k), k % 4 == 3, False, [k + 0.5])


def test_the_six_buffers_of_pfrl(tmp_path: Path) -> None:
    plain = ReplayBuffer(40, SPEC)
    fill(plain)
    assert len(plain) == 12
    assert sorted(plain.sample(12, 0, unique=True).reward.tolist()) == list(range(12))  # no transition twice

    for episodic in (EpisodicReplayBuffer(40, SPEC), PersistentEpisodicReplayBuffer(tmp_path / "e", 40, SPEC)):
        fill(episodic)
        assert len(episodic) == 3
        got = episodic.sample(20, 0, max_length=2)
        assert got.mask.shape == (20, 2)
        assert (got.reward[:, 1] == got.reward[:, 0] + 1).all()
        assert episodic.sample_episodes(5, step=1).mask.shape == (5, 4)

    first = PrioritizedReplayBuffer(40, SPEC, alpha=1.0, eps=0.0, error_max=None, td_steps=2)
    fill(first)
    batch = first.sample(12, 0)
    first.update_errors(torch.where(batch.observation[:, 0] == 5, 1.0, 0.0))
    for size in (12, 3):  # one set of priorities for all sizes
        assert set(first.sample(size, 1).observation.flatten().tolist()) == {5.0}
    first.update_errors([1.0, 1.0, 1.0])
    with pytest.raises(ConfigError, match="sample first"):
        first.update_errors([1.0])

    episodes = PrioritizedEpisodicReplayBuffer(40, SPEC, alpha=1.0, eps=0.0)
    fill(episodes)
    drawn = episodes.sample(3, 0)
    assert len(episodes) == 3
    assert drawn.weight is not None
    with pytest.raises(ConfigError, match="are awaited"):
        episodes.sample(3, 1)
    episodes.update_errors(torch.where(drawn.reward[:, 0] == 4, 1.0, 0.0))
    assert set(episodes.sample(3, 1).reward[:, 0].tolist()) == {4.0}


def test_extra_columns_and_stopped_episodes() -> None:
    buffer = ReplayBuffer(20, SPEC, 2, extra={"log_prob": (), "state": (3,)})
    for k in range(4):
        buffer.append([[k], [k + 10]], [[0], [0]], [k, k + 10], [0, 0], [0, 0], log_prob=[-k, -k - 10], state=np.full((2, 3), k))
    assert buffer.n_windows() == 6
    buffer.stop_current_episode(1, [99.0])
    buffer.stop_current_episode(1, [98.0])  # nothing is open any more
    assert (buffer.n_windows(), buffer.n_episodes) == (7, 1)
    batch = buffer.sampler(30, extra=("log_prob", "state")).sample(0)
    assert torch.equal(batch.extra["log_prob"], -batch.reward)
    for seed in (0, np.int64(0)):
        drawn = buffer.sample(30, 0, seed, extra=["log_prob", "state"])
        assert torch.equal(drawn.extra["state"], batch.extra["state"])
    assert torch.equal(batch.extra["state"], (batch.reward % 10)[:, None].expand(30, 3))
    assert (batch.next_observation[batch.reward == 13] == 99).all()
    assert buffer.to_dataset().columns["state"].shape == (10, 3)
    with pytest.raises(DataError, match="'log_prob' does not fit"):
        buffer.append([[0], [0]], [[0], [0]], [0, 0], [0, 0], [0, 0], state=np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"state has shape \[2\]; \[2, 3\] is needed"):
        buffer.append([[0], [0]], [[0], [0]], [0, 0], [0, 0], [0, 0], log_prob=[0, 0], state=[0, 0])
    with pytest.raises(ConfigError, match="no environment 2"):
        buffer.add([0.0], [0.0], 0.0, env=2)
    with pytest.raises(ConfigError, match="'reward' has a name that the buffer uses"):
        ReplayBuffer(20, SPEC, extra={"reward": ()})


KINDS = [ReplayBuffer, EpisodicReplayBuffer, PrioritizedReplayBuffer, PrioritizedEpisodicReplayBuffer]


def fill_saved(buffer: ReplayBuffer, first: int = 0, count: int = 24) -> None:
    for k in range(first, first + count):
        buffer.add([float(k)], [0.0], float(k), k % 4 == 3, False, [k + 0.5])


def drawn(buffer: ReplayBuffer) -> list[Any]:
    """Draws of several sizes, between which errors are told and steps appended."""
    got: list[Any] = []
    for step in range(6):
        batch = buffer.sample(3 + step % 2, step)
        got += [batch.index, batch.weight]
        if isinstance(buffer, PrioritizedReplayBuffer):
            buffer.update_errors(batch.index / 30)
        fill_saved(buffer, 100 + 4 * step, 4)
    return got


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_buffer_goes_on_as_the_one_that_was_saved(kind: type[ReplayBuffer], tmp_path: Path) -> None:
    options = {"alpha": 0.9, "error_max": 5.0} if issubclass(kind, PrioritizedReplayBuffer) else {}
    buffer = kind(50, SPEC, **options)
    fill_saved(buffer)
    drawn(buffer)
    buffer.save(tmp_path / "buffer")
    again, by_state = kind.load(tmp_path / "buffer"), kind(50, SPEC, **options)
    fill_saved(by_state, 7)
    drawn(by_state)  # what it had learned before is forgotten
    by_state.load_state(buffer.state())
    assert type(ReplayBuffer.load(tmp_path / "buffer")) is type(again) is kind
    assert len(again) == len(buffer)
    expected = drawn(buffer)
    for other in (again, by_state):
        for a, b in zip(drawn(other), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_priorities_are_those_that_were_learned(tmp_path: Path) -> None:
    buffer = PrioritizedReplayBuffer(40, SPEC, alpha=1.0, eps=0.0, error_max=None)
    fill_saved(buffer)
    batch = buffer.sample(24, 0)
    buffer.update_errors(torch.where(batch.observation[:, 0] == 5, 2.0, 0.0))
    buffer.save(tmp_path / "buffer")
    again = PrioritizedReplayBuffer.load(tmp_path / "buffer")
    assert set(again.sample(12, 1).observation.flatten().tolist()) == {5.0}
    fill_saved(again, 24, 2)  # 24 can be drawn now, with the largest priority so far, 2 as well
    assert set(again.sample(2, 1).observation.flatten().tolist()) == {5.0, 24.0}
    fresh = PrioritizedReplayBuffer(40, SPEC)
    fill_saved(fresh)
    again.load_state(fresh.state())  # of which nothing was drawn yet
    assert sorted(again.sample(24, 1).observation.flatten().tolist()) == list(range(24))


def test_buffers_in_folders_are_saved_as_what_they_are_in_memory(tmp_path: Path) -> None:
    for folder, kind in (
        (PersistentReplayBuffer(tmp_path / "a", 40, SPEC), ReplayBuffer),
        (PersistentEpisodicReplayBuffer(tmp_path / "b", 40, SPEC), EpisodicReplayBuffer),
    ):
        fill_saved(folder, count=8)
        folder.save(tmp_path / "saved")
        again = kind.load(tmp_path / "saved")
        assert type(again) is kind
        assert torch.equal(again.sample(9, 0).reward, folder.sample(9, 0).reward)
        with pytest.raises(DataError, match=f"holds a {kind.__name__} and no Persistent.*: {kind.__name__}.load opens it"):
            type(folder).load(tmp_path / "saved")
        folder.close()


def test_what_a_file_cannot_hold_is_given_again(tmp_path: Path) -> None:
    buffer = PrioritizedEpisodicReplayBuffer(40, SPEC, default_priority_func=len, max_length=2)
    fill_saved(buffer)
    buffer.save(path := tmp_path / "buffer")
    again = PrioritizedEpisodicReplayBuffer.load(path, default_priority_func=len)
    assert torch.equal(again.sample(5, 0).reward, buffer.sample(5, 0).reward)
    with pytest.raises(ConfigError, match=r"option 'default_priority_func' of the .* cannot be kept in a file: give it to load"):
        ReplayBuffer.load(path)
    with pytest.raises(ConfigError, match=r"option 'alpha' of the PrioritizedEpisodic.* is none that the file lacks"):
        ReplayBuffer.load(path, default_priority_func=len, alpha=0.5)
    with pytest.raises(DataError, match=r"holds a PrioritizedEpisodicReplayBuffer and no EpisodicReplayBuffer"):
        EpisodicReplayBuffer.load(path, default_priority_func=len)


def test_a_file_that_says_no_kind_is_of_a_plain_buffer(tmp_path: Path) -> None:
    buffer = ReplayBuffer(40, SPEC)
    fill_saved(buffer)
    buffer.save(tmp_path / "buffer.npz")
    with np.load(tmp_path / "buffer.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    told = arrays["description"].tobytes()
    arrays["description"] = np.frombuffer(told[: told.index(b', "kind"')] + b"}", np.uint8)
    np.savez(tmp_path / "old.npz", **arrays)
    assert type(ReplayBuffer.load(tmp_path / "old.npz")) is ReplayBuffer
