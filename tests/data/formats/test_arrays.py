"""PFRL's buffers as arrays and OGBench's archives: ends that are not marked, marked otherwise, or marked on another row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, read


def write(path: Path, **arrays: Any) -> Path:
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return path


def buffer(starts: tuple[float, ...] = (0, 10, 20), length: int = 3) -> dict[str, np.ndarray]:
    """Episodes that count up from `starts`, stored as PFRL's items are: the first is terminal, the others are interrupted."""
    state = np.concatenate([start + np.arange(length, dtype=float) for start in starts])[:, None]
    return {
        "state": state,
        "action": np.zeros(len(state), int),
        "reward": np.ones(len(state)),
        "next_state": state + 1,
        "is_state_terminal": np.arange(len(state)) == length - 1,
    }


def test_pfrl_interrupted_episodes_are_cut_where_the_state_jumps(tmp_path: Path) -> None:
    path = write(tmp_path / "file", **buffer())
    assert detect(path) == "pfrl"
    imported = read(path)
    assert imported.steps.steps.tolist() == [3, 3, 3]
    assert imported.steps.terminated.tolist() == [True, False, False]
    assert imported.steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
    assert imported.steps.cuts == 1  # the last row ends anyway
    assert imported.steps.final_recorded.all()
    assert imported.steps.columns["action"].dtype == np.int64


def test_pfrl_a_shuffled_buffer_is_a_bag_of_transitions(tmp_path: Path) -> None:
    order = np.array([4, 0, 8, 2, 6, 1, 3, 7, 5])
    steps = read(write(tmp_path / "file", **{key: array[order] for key, array in buffer().items()})).steps
    assert steps.steps.tolist() == [1] * 9
    assert steps.terminated.tolist() == [k == 2 for k in order]


def test_pfrl_environments_that_take_turns(tmp_path: Path) -> None:
    raw = buffer()
    raw["env_id"] = np.repeat([2, 0, 1], 3)
    order = np.arange(9).reshape(3, 3).T.reshape(-1)  # 0, 3, 6, 1, …
    steps = read(write(tmp_path / "file", **{key: array[order] for key, array in raw.items()})).steps
    assert steps.steps.tolist() == [3, 3, 3]
    assert steps.columns["observation"][::4, 0].tolist() == [10, 20, 0]  # environments 0, 1, 2
    assert steps.terminated.tolist() == [False, False, True]
    # One environment's first state may be what another one saw last: that is an end too.
    raw["next_state"][5] = raw["state"][6]
    raw["env_id"] = np.repeat([0, 1, 2], 3)
    assert read(write(tmp_path / "file", **raw)).steps.steps.tolist() == [3, 3, 3]


def test_pfrl_a_terminal_without_a_next_state(tmp_path: Path) -> None:
    raw = buffer()
    raw["next_state"][2] = np.nan
    steps = read(write(tmp_path / "file", **raw), "pfrl").steps
    assert steps.final_recorded.tolist() == [False, True, True]
    assert steps.columns["observation"][3].tolist() == [2]
    raw["next_state"][5] = np.nan  # not terminal, so it is needed
    with pytest.raises(DataError, match=r"next_observations has NaN in row 5\.$"):
        read(write(tmp_path / "file", **raw), "pfrl")


def test_numbers_too_large_to_be_kinds_of_actions(tmp_path: Path) -> None:
    """To count kinds of actions takes memory for each number up to the largest."""
    raw = buffer()
    raw["action"][4] = 1 << 40
    path = write(tmp_path / "file", **raw)
    with pytest.raises(DataError, match=r"file: 'action' goes up to 1099511627776, and 1048576 kinds are the most"):
        read(path)
    assert read(path, discrete_action=False).steps.columns["action"].dtype == np.float32
    with pytest.raises(DataError, match="'action' goes up to 1048576"):
        Dataset.from_arrays(np.ones((2, 1)), np.array([0, 1 << 20]), np.ones(2), np.array([0, 1]))


def test_pfrl_windows_of_several_steps_and_missing_arrays(tmp_path: Path) -> None:
    raw = buffer()
    with pytest.raises(DataError, match=r"'reward' has windows of 3 steps; export single transitions \(num_steps=1\)\.$"):
        read(write(tmp_path / "file", **raw | {"reward": np.ones((9, 3))}), "pfrl")
    del raw["next_state"]
    with pytest.raises(DataError, match=r"file has no 'next_state', only 'state', 'action', 'reward', 'is_state_terminal'\.$"):
        read(write(tmp_path / "file", **raw), "pfrl")
    with pytest.raises(DataError, match=r"'state' has 9 rows, but 'reward' has 8\.$"):
        read(write(tmp_path / "file", **buffer() | {"reward": np.ones(8)}), "pfrl")
    with pytest.raises(ConfigError, match="rename: pfrl has no column 'reward'; did you mean 'rewards'"):
        read(write(tmp_path / "file", **buffer()), "pfrl", rename={"reward": "r"})


def trajectories(**more: np.ndarray) -> dict[str, np.ndarray]:
    """As OGBench publishes them: two trajectories of 3 and 2 steps in 7 rows, where `terminals` marks the final observations."""
    return {
        "observations": np.array([[0], [1], [2], [3], [10], [11], [12]], np.float32),
        "actions": np.array([[0.1], [0.2], [0.3], [9], [0.4], [0.5], [9]], np.float32),
        "terminals": np.array([0, 0, 0, 1, 0, 0, 1], np.float32),
        "qpos": np.arange(14.0).reshape(7, 2),
        **more,
    }


def test_ogbench_terminals_are_final_observations_and_no_ends_of_the_task(tmp_path: Path) -> None:
    path = write(tmp_path / "antmaze-large-navigate-v0.npz", **trajectories())
    assert detect(path) == "ogbench"
    imported = read(path)
    steps = imported.steps
    assert (steps.n_transitions, steps.steps.tolist()) == (5, [3, 2])
    assert not steps.terminated.any()
    assert steps.final_recorded.all()
    assert steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12]
    np.testing.assert_array_equal(steps.columns["action"][:, 0], np.float32([0.1, 0.2, 0.3, 0, 0.4, 0.5, 0]))
    assert steps.columns["info/qpos"][:3].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert steps.returns.tolist() == [0, 0]
    assert any("no rewards" in note for note in imported.notes)
    assert imported.provenance["split"] == "train"


def test_ogbench_as_it_loads_it(tmp_path: Path) -> None:
    """`compact` has valids and two terminals an end; the default has next_observations and a terminal at the last step."""
    raw = trajectories()
    compact = raw | {"terminals": np.array([0, 0, 1, 1, 0, 1, 1]), "valids": np.array([1, 1, 1, 0, 1, 1, 0])}
    keep = raw["terminals"] == 0
    regular = {key: array[keep] for key, array in raw.items()}
    regular |= {"terminals": np.array([0, 0, 1, 0, 1]), "next_observations": raw["observations"][1:][keep[:-1]]}
    for k, arrays in enumerate((compact, regular)):
        steps = read(write(tmp_path / f"{k}.npz", **arrays), "ogbench").steps
        assert steps.steps.tolist() == [3, 2]
        assert not steps.terminated.any()
        assert steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12]
        np.testing.assert_array_equal(steps.columns["action"][:, 0], np.float32([0.1, 0.2, 0.3, 0, 0.4, 0.5, 0]))


def test_ogbench_masks_are_ends_of_the_task(tmp_path: Path) -> None:
    raw = trajectories(rewards=np.array([-1, 0, -1, 5, -1, -1, 5]), masks=np.array([1, 0, 1, 1, 1, 0, 1]))
    path = write(tmp_path / "file", **raw)
    assert detect(path) == "ogbench"
    steps = read(path).steps
    assert steps.steps.tolist() == [2, 1, 2]
    assert steps.terminated.tolist() == [True, False, True]
    assert steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 2, 3, 10, 11, 12]
    assert steps.returns.tolist() == [-1, -1, -2]


def test_ogbench_a_file_cut_within_a_trajectory_and_ends_without_steps(tmp_path: Path) -> None:
    cut = {key: array[:6] for key, array in trajectories().items()}
    steps = read(write(tmp_path / "file", **cut), "ogbench").steps
    assert steps.steps.tolist() == [3, 2]
    assert steps.final_recorded.tolist() == [True, False]
    assert steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 3, 10, 11, 11]
    twice = trajectories(terminals=np.array([1, 0, 0, 1, 1, 0, 1]))
    imported = read(write(tmp_path / "file", **twice), "ogbench")
    assert imported.steps.steps.tolist() == [2, 1]
    assert any("2 rows are a final observation without a step" in note for note in imported.notes)
    with pytest.raises(DataError, match="has no steps: every row is the end of a trajectory"):
        read(write(tmp_path / "file", **trajectories(terminals=np.ones(7))), "ogbench")


def test_ogbench_the_validation_split_and_images(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (7, 8, 8, 3), dtype=np.uint8)
    imported = read(write(tmp_path / "visual-cube-single-play-v0-val.npz", **trajectories(observations=images)))
    assert imported.provenance["split"] == "validation"
    assert any("validation split: import it as a dataset of its own" in note for note in imported.notes)
    assert imported.steps.columns["observation"].dtype == np.uint8
    np.testing.assert_array_equal(imported.steps.columns["observation"], images)
