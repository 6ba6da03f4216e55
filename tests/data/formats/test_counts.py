"""Counts that a format's metadata name, held against what is there: a dataset of which a part is missing is not read as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from d3ray.data.errors import DataError
from d3ray.data.formats.registry import parts_of, plan, read

from .minari_folders import BOX, TWO, episode_of, metadata, write_hdf5
from .test_lerobot import LENGTHS, columns_of, write
from .test_rlds import STEP
from .test_rlds import episode_of as rlds_episode
from .tfrecords import write_rlds


def lerobot(folder: Path, version: str, **said: Any) -> Path:
    write(folder, columns_of(), version)
    info = json.loads((folder / "meta/info.json").read_text())
    counts = {"total_episodes": len(LENGTHS), "total_frames": sum(LENGTHS)}
    (folder / "meta/info.json").write_text(json.dumps(info | counts | said))
    return folder


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_lerobots_episodes_and_frames_are_counted(tmp_path: Path, version: str) -> None:
    assert len(parts_of(lerobot(tmp_path / "whole", version))) == (3 if version == "v2.1" else 1)
    with pytest.raises(DataError, match=r"has 3 episodes in \d files below data/, and meta/info.json says 4 \(episode 3"):
        parts_of(lerobot(tmp_path / "episodes", version, total_episodes=4))
    with pytest.raises(DataError, match=r"has 8 frames in \d files below data/, and meta/info.json says 9: fetch what is missing"):
        parts_of(lerobot(tmp_path / "frames", version, total_frames=9))
    folder = lerobot(tmp_path / "lacking", "v2.1")
    (folder / "data/chunk-000/episode_000001.parquet").unlink()
    with pytest.raises(DataError, match=r"has 2 episodes in 2 files .* says 3 \(episode 1 is not there\)"):
        parts_of(folder)
    assert read(folder / "data/chunk-000/episode_000002.parquet").steps.steps.tolist() == [4]  # what is named is read
    assert parts_of(lerobot(tmp_path / "unsaid", version, total_episodes=None, total_frames="many"))


def rlds(folder: Path, lengths: list[str] | None, shards: int = 2) -> list[Path]:
    files = [
        write_rlds(folder, STEP, [rlds_episode(2)] * (k + 1), name=f"toy-train.tfrecord-{k:05}-of-{shards:05}")
        for k in range(shards)
    ]
    if lengths is not None:
        splits = [{"name": "train", "shardLengths": lengths}, {"name": "test", "shardLengths": ["5"]}]
        (folder / "dataset_info.json").write_text(json.dumps({"name": "toy", "version": "1.0.0", "splits": splits}))
    return files


def test_rlds_files_and_records_are_counted(tmp_path: Path) -> None:
    files = rlds(tmp_path / "toy", ["1", "2"])
    assert parts_of(tmp_path / "toy") == files
    imported = read(files[1])
    assert imported.steps.n_episodes == 2
    assert imported.notes[0] == "dataset_info.json names the split 'test', of which no file is there."
    rlds(tmp_path / "toy", ["1", "3"])
    with pytest.raises(DataError, match=r"toy-train.tfrecord-00001-of-00002 has 2 records, and dataset_info.json says 3\."):
        read(files[1])
    rlds(tmp_path / "toy", ["1", "2", "2"])
    with pytest.raises(DataError, match=r"2 files of the split 'train', and dataset_info.json says 3 \(number 2 is not"):
        parts_of(tmp_path / "toy")
    (first, _) = rlds(tmp_path / "named", None)
    first.unlink()
    with pytest.raises(DataError, match=r"1 files of the split 'train', and their names say 2 \(number 0 is not there\)"):
        parts_of(tmp_path / "named")
    rlds(tmp_path / "odd", ["many", "-1"])
    assert len(parts_of(tmp_path / "odd")) == 2


def test_minaris_steps_are_counted_whole_and_in_stretches(tmp_path: Path) -> None:
    episodes = [episode_of(n, n, truncated=True) for n in (2, 3)]
    path = write_hdf5(tmp_path / "toy", episodes, metadata(BOX, TWO, 2, total_steps=6))
    for attempt in (lambda: read(path), lambda: plan(path, n_bytes=1)):
        with pytest.raises(DataError, match=r"has 5 steps; .*metadata.json says 6"):
            attempt()


def test_d3rlpys_episodes_are_counted(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file", "w") as file:
        file["columns"], file["num_episodes"], file["version"] = ["observations"], 1, "2.8"
        for k in range(2):
            file[f"observations_{k}"], file[f"actions_{k}"] = np.zeros((3, 1)), np.zeros((3, 1))
            file[f"rewards_{k}"], file[f"terminated_{k}"] = np.zeros((3, 1)), True
    with pytest.raises(DataError, match="has the rewards of 2 episodes, and its num_episodes is 1"):
        read(tmp_path / "file")
