"""DQN Replay's checkpoints, written by a small Dopamine: a ring with padding before episodes, logged one row before it is full."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats import dqn_replay
from d3ray.data.formats.dqn_replay import DQNReplay
from d3ray.data.formats.registry import detect, read
from d3ray.data.formats.untrusted import unpacking
from d3ray.platform.datasets.ingest import ingest

FRAME = (4, 4)


def save(path: Path, array: Any) -> None:
    data = io.BytesIO()
    np.save(data, array)
    path.write_bytes(gzip.compress(data.getvalue(), 1))


class Dopamine:
    """The ring buffer of Dopamine and how batch_rl logs it: a frame's pixels are the number of its step, counted from 1."""

    def __init__(self, folder: Path, capacity: int, *, counts: bool = True) -> None:
        self.folder, self.capacity, self.counts = folder, capacity, counts
        self.store: dict[str, np.ndarray] = {
            "observation": np.zeros((capacity, *FRAME), np.uint8),
            "action": np.zeros(capacity, np.int32),
            "reward": np.zeros(capacity, np.float32),
            "terminal": np.zeros(capacity, np.uint8),
        }
        self.added = self.logged = 0
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, number: int, terminal: bool) -> None:
        if self.added == 0 or self.store["terminal"][(self.added - 1) % self.capacity]:
            for _ in range(3):
                self._put(0, 0, 0.0, 0)
        self._put(number, number % 5, number / 10, terminal)

    def _put(self, *row: Any) -> None:
        for array, value in zip(self.store.values(), row, strict=True):
            array[self.added % self.capacity] = value
        self.added += 1
        if self.added % self.capacity == self.capacity - 1:
            self.log()

    def log(self) -> None:
        for name, array in self.store.items():
            save(self.folder / f"$store$_{name}_ckpt.{self.logged}.gz", array)
        if self.counts:
            save(self.folder / f"add_count_ckpt.{self.logged}.gz", np.array(self.added))
        self.logged += 1


def play(buffer: Dopamine, lengths: list[int]) -> list[list[int]]:
    """Episodes that end terminated; gives the numbers of their frames."""
    number, episodes = 0, []
    for length in lengths:
        episodes.append(list(range(number + 1, number + length + 1)))
        for k in range(length):
            number += 1
            buffer.add(number, k == length - 1)
    return episodes


def numbers(imported: Any) -> list[list[int]]:
    """Of each episode the numbers of its frames, without the closing row."""
    steps = imported.steps
    frames = steps.columns["observation"].reshape(steps.n_rows, -1)[:, 0].astype(int)
    return [frames[a : a + n].tolist() for a, n in zip(steps.first_row, steps.steps, strict=True)]


def test_a_checkpoint_without_its_padding(tmp_path: Path) -> None:
    buffer = Dopamine(tmp_path / "logs", 20)
    play(buffer, [4, 5, 9])  # 7 + 8 rows, then 3 of padding and 1 step before the ring has one row left
    assert [p.name for p in DQNReplay.parts(tmp_path / "logs")] == ["$store$_observation_ckpt.0.gz"]
    path = tmp_path / "logs" / "$store$_observation_ckpt.0.gz"
    assert detect(path) == detect(tmp_path / "logs") == "dqn_replay"
    imported = read(path)
    steps = imported.steps
    assert numbers(imported) == [[1, 2, 3, 4], [5, 6, 7, 8, 9], [10]]
    assert steps.terminated.tolist() == [True, True, False]
    assert not steps.final_recorded.any()
    assert steps.columns["observation"].shape == (13, 1, 4, 4)
    assert steps.columns["observation"].dtype == np.uint8
    open_rows = ~steps.columns["closing"]
    assert steps.columns["action"][open_rows].tolist() == [k % 5 for k in range(1, 11)]
    np.testing.assert_array_equal(steps.columns["reward"][open_rows], np.arange(1, 11, dtype=np.float32) / np.float32(10))
    assert steps.columns["observation"][4, 0, 0, 0] == 4  # a closing row repeats the last frame
    assert steps.columns["reward"][4] == 0
    assert any(note.startswith("9 rows of zeros before episodes were left out") for note in imported.notes)
    assert any(note.startswith("1 rows were never written") for note in imported.notes)


def test_the_row_of_the_round_before_comes_last_with_the_frame_after_it(tmp_path: Path) -> None:
    buffer = Dopamine(tmp_path / "logs", 20)
    episodes = play(buffer, [4, 5, 30])
    first, second = (read(path) for path in DQNReplay.parts(tmp_path / "logs"))
    assert second.steps.terminated.tolist() == [False, False]
    assert numbers(second) == [list(range(12, 31)), [11]]
    assert second.steps.final_recorded.tolist() == [False, True]
    assert second.steps.columns["observation"][-1, 0, 0, 0] == 12  # 11 lies in the last row of the ring, 12 in the first
    # Nothing is lost and nothing is there twice.
    everything = sorted(k for imported in (first, second) for part in numbers(imported) for k in part)
    assert everything == sorted(k for episode in episodes for k in episode)[:30]


def test_a_share_is_of_whole_episodes_but_for_the_last(tmp_path: Path) -> None:
    buffer = Dopamine(tmp_path / "logs", 200)
    episodes = play(buffer, [5] * 40)
    path = DQNReplay.parts(tmp_path / "logs")[0]
    whole, drawn = read(path, "dqn_replay"), read(path, "dqn_replay", share=0.4)
    wanted = int(0.4 * whole.steps.n_transitions)
    assert drawn.steps.n_transitions == wanted
    *firsts, last = numbers(drawn)
    assert all(one in episodes for one in firsts)
    assert any(one[: len(last)] == last for one in episodes)
    assert firsts != numbers(whole)[: len(firsts)]  # drawn, not the first ones
    assert numbers(read(path, "dqn_replay", share=0.4)) == [*firsts, last]
    assert any(note.startswith(f"{wanted} of {whole.steps.n_transitions} steps were drawn") for note in drawn.notes)
    with pytest.raises(ConfigError, match=r"share is 1\.5; input should be less than or equal to 1"):
        read(path, share=1.5)


def test_one_percent_of_a_run_comes_of_files_that_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the catalog's name, with a folder in place of the server: so many steps of each of fifty checkpoints."""
    buffer = Dopamine(tmp_path / "Pong" / "1" / "replay_logs", 210)
    for k in range(7700):
        buffer.add(k % 250 + 1, k % 7 == 6)
    assert buffer.logged > 50
    server = "https://storage.googleapis.com/atari-replay-datasets/dqn/"
    (tmp_path / "here.json").write_text(json.dumps({"mirrors": {server: f"{tmp_path}/"}}))
    monkeypatch.setenv("D3RAY_CATALOG", str(tmp_path / "here.json"))
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    dataset = Dataset.open("atari/pong-1-percent-v0")
    assert dataset.n_transitions == 50  # a hundredth of each, which has between 100 and 199 steps
    assert dataset.environment is not None
    assert dataset.environment.id == "ALE/Pong-v5"
    frames = dataset.columns["observation"][:, 0, 0, 0]
    assert len(np.unique(frames)) > 20  # from everywhere


@pytest.mark.parametrize("lengths", [[3, 13, 6, 9, 20], [1] * 30, [16, 1, 1, 17], [40], [2, 11, 1, 3, 14, 5]])
def test_any_lengths_give_each_step_once(tmp_path: Path, lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dqn_replay, "CHUNK", 3 * 16)  # three frames at a time
    buffer = Dopamine(tmp_path / "logs", 20)
    episodes = play(buffer, lengths)
    seen = [part for path in DQNReplay.parts(tmp_path / "logs") for part in numbers(read(path))]
    assert sorted(k for part in seen for k in part) == list(range(1, sum(map(len, seen)) + 1))
    whole = {tuple(episode) for episode in episodes}
    for part in seen:  # each is a stretch of one episode
        assert any(set(part) <= set(episode) for episode in whole)
        assert part == list(range(part[0], part[-1] + 1))


def test_black_frames_of_the_game_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    frames = np.ones((12, *FRAME), np.uint8)
    frames[[0, 1, 2, 3, 6]] = 0  # three of padding and a black one; another in between
    arrays = {"observation": frames, "action": np.zeros(12, int), "reward": np.zeros(12), "terminal": np.arange(12) == 11}
    for name, array in arrays.items():
        save(folder / f"$store$_{name}_ckpt.3.gz", array)
    path = folder / "$store$_observation_ckpt.3.gz"
    imported = read(path, "dqn_replay")
    assert imported.steps.steps.tolist() == [9]
    assert read(path, "dqn_replay", padding=0).steps.steps.tolist() == [12]
    assert any("There is no add_count file" in note for note in imported.notes)
    frames[0] = 1  # what is black in the second row is no padding then, for that has no gap before it
    save(path, frames)
    assert read(path, "dqn_replay").steps.steps.tolist() == [12]
    frames[0] = 0
    save(path, frames)
    assert read(path, "dqn_replay", timeout_at=9).steps.terminated.tolist() == [False]
    with pytest.raises(DataError, match=r"episode 0 has 9 steps, more than timeout_at=5\.$"):
        read(path, "dqn_replay", timeout_at=5)


def test_missing_damaged_and_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    play(Dopamine(folder, 20), [30])
    path = folder / "$store$_observation_ckpt.0.gz"
    reward = folder / "$store$_reward_ckpt.0.gz"
    with pytest.raises(DataError, match=r"name a checkpoint's file of observations, or the folder\.$"):
        read(reward)
    kept = reward.read_bytes()
    reward.unlink()
    with pytest.raises(DataError, match=r"logs lacks \$store\$_reward_ckpt\.0\.gz, the checkpoint's rewards\.$"):
        read(path)
    save(reward, np.zeros(19))
    with pytest.raises(DataError, match=r"'observation' has 20 rows, but 'reward' has 19\.$"):
        read(path)
    save(reward, np.where(np.arange(20) == 9, 1e300, 0.0))
    with pytest.raises(DataError, match=r"ckpt\.0\.gz, rewards has a number that is not finite as float32 in row \d+\.$"):
        read(path)
    save(reward, np.array(["a"] * 20))
    with pytest.raises(DataError, match=r"reward_ckpt\.0\.gz holds <U1, not numbers\.$"):
        read(path)
    reward.write_bytes(kept[:-20])
    with pytest.raises(DataError, match=r"reward_ckpt\.0\.gz is an archive that is cut short or damaged"):
        read(path)
    reward.write_bytes(kept)
    frames = path.read_bytes()
    path.write_bytes(frames[: len(frames) // 2])
    with pytest.raises(DataError, match=r"observation_ckpt\.0\.gz is (an archive that is cut short|cut short)"):
        read(path)
    raw = gzip.decompress(frames)
    path.write_bytes(gzip.compress(raw[:-40]))
    with pytest.raises(DataError, match=r"observation_ckpt\.0\.gz is cut short: it ends in row 17 of 20\.$"):
        read(path)
    save(path, np.zeros((20, 4, 4), np.float32))
    with pytest.raises(DataError, match=r"holds float32 of shape \[20, 4, 4\], not frames of bytes\.$"):
        read(path)


def test_checkpoints_become_one_dataset(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    play(Dopamine(tmp_path / "1" / "replay_logs", 20), [4, 30, 30])
    done = ingest(tmp_path / "1", tmp_path / "out")
    parts = [Path(file.source).name for file in done.files]
    assert parts == [f"$store$_observation_ckpt.{k}.gz" for k in range(len(parts))]
    assert len(parts) == 3
    assert done.dataset.columns["observation"].shape[1:] == (1, 4, 4)
    assert done.dataset.n_transitions == sum(file.n_transitions for file in done.files)


def test_frames_may_fill_the_memory_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 10_000  # 71 MB
    arrays = {"observation": np.zeros((n, 84, 84), np.uint8), "action": np.zeros(n, int), "reward": np.zeros(n)}
    for name, array in (arrays | {"terminal": np.arange(n) % 500 == 499}).items():
        save(tmp_path / f"$store$_{name}_ckpt.0.gz", array)
    path = tmp_path / "$store$_observation_ckpt.0.gz"
    monkeypatch.setattr(unpacking, "free_memory", lambda: 80_000_000)
    assert read(path).steps.n_episodes == 20
    with pytest.raises(DataError, match=r"unpacks to 141 MB or more, .* all of the memory that is free here, is 80 MB"):
        read(path, share=0.5)
    monkeypatch.setattr(unpacking, "free_memory", lambda: 70_000_000)
    with pytest.raises(DataError, match="all of the memory that is free here, is 70 MB"):
        read(path)


@pytest.mark.slow
def test_frames_are_in_memory_once(tmp_path: Path) -> None:
    """Reading 420 MB of frames takes less than 1.5 times as much."""
    folder, n = tmp_path / "logs", 60_000
    folder.mkdir()
    noise = np.random.default_rng(0).integers(1, 255, (n, 84, 84), dtype=np.uint8)
    arrays = {"observation": noise, "action": np.zeros(n, int), "reward": np.zeros(n), "terminal": np.arange(n) % 500 == 499}
    for name, array in arrays.items():
        save(folder / f"$store$_{name}_ckpt.0.gz", array)
    code = (
        "import resource, sys; from pathlib import Path; from d3ray.data.formats.dqn_replay import DQNReplay; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        f"steps = DQNReplay().read(Path({str(folder / '$store$_observation_ckpt.0.gz')!r})).steps; "
        "print(steps.n_transitions, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    transitions, grown = map(int, done.stdout.split())
    assert transitions == n
    assert grown < 1.5 * noise.nbytes
