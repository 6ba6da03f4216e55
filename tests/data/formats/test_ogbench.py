"""OGBench's archives of NumPy: ends, splits, images, and the rewards of its single tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.errors import ConfigError, DataError
from d3ray.data.formats.registry import detect, parts_of, read
from d3ray.data.spec import Environment


def write(path: Path, **arrays: Any) -> Path:
    with path.open("wb") as file:  # given a name, NumPy would add `.npz`
        np.savez(file, **arrays)
    return path


def locomotion(**more: np.ndarray) -> dict[str, np.ndarray]:
    """As OGBench publishes them: two trajectories of 3 and 2 steps in 7 rows, where `terminals` marks the final observations."""
    return {
        "observations": np.array([[0], [1], [2], [3], [10], [11], [12]], np.float32),
        "actions": np.array([[0.1], [0.2], [0.3], [9], [0.4], [0.5], [9]], np.float32),
        "terminals": np.array([0, 0, 0, 1, 0, 0, 1], np.float32),
        "qpos": np.arange(14.0).reshape(7, 2),
        **more,
    }


def test_ogbench_terminals_are_final_observations_and_no_ends_of_the_task(tmp_path: Path) -> None:
    path = write(tmp_path / "antmaze-large-navigate-v0.npz", **locomotion())
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
    raw = locomotion()
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
    raw = locomotion(rewards=np.array([-1, 0, -1, 5, -1, -1, 5]), masks=np.array([1, 0, 1, 1, 1, 0, 1]))
    path = write(tmp_path / "file", **raw)
    assert detect(path) == "ogbench"
    steps = read(path).steps
    assert steps.steps.tolist() == [2, 1, 2]
    assert steps.terminated.tolist() == [True, False, True]
    assert steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 2, 3, 10, 11, 12]
    assert steps.returns.tolist() == [-1, -1, -2]


def test_ogbench_a_file_cut_within_a_trajectory_and_ends_without_steps(tmp_path: Path) -> None:
    cut = {key: array[:6] for key, array in locomotion().items()}
    steps = read(write(tmp_path / "file", **cut), "ogbench").steps
    assert steps.steps.tolist() == [3, 2]
    assert steps.final_recorded.tolist() == [True, False]
    assert steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 3, 10, 11, 11]
    twice = locomotion(terminals=np.array([1, 0, 0, 1, 1, 0, 1]))
    imported = read(write(tmp_path / "file", **twice), "ogbench")
    assert imported.steps.steps.tolist() == [2, 1]
    assert any("2 rows are a final observation without a step" in note for note in imported.notes)
    with pytest.raises(DataError, match="has no steps: every row is the end of a trajectory"):
        read(write(tmp_path / "file", **locomotion(terminals=np.ones(7))), "ogbench")


def test_ogbench_the_validation_split_and_images(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (7, 8, 8, 3), dtype=np.uint8)
    imported = read(write(tmp_path / "visual-cube-single-play-v0-val.npz", **locomotion(observations=images)))
    assert imported.provenance["split"] == "validation"
    assert any("validation split: import it as a dataset of its own" in note for note in imported.notes)
    assert imported.steps.columns["observation"].dtype == np.uint8
    np.testing.assert_array_equal(imported.steps.columns["observation"], images)


def test_ogbench_a_single_task_pays_and_ends_where_its_goal_is_reached(tmp_path: Path) -> None:
    """Task 1 of the medium point maze is at (20, 20), within 1: reached before the step of row 1 and, exactly, of row 4."""
    qpos = np.array([[0, 0], [20.5, 20.5], [18.9, 20], [20, 20], [21, 20], [0, 20], [20, 20]], np.float32)
    path = write(tmp_path / "file", **locomotion(qpos=qpos))
    imported = read(path, task="pointmaze-medium-navigate-singletask-task1-v0")
    steps = imported.steps
    assert steps.columns["reward"][~steps.columns["closing"]].tolist() == [-1, 0, -1, 0, -1]
    assert steps.steps.tolist() == [2, 1, 1, 1]
    assert steps.terminated.tolist() == [True, False, True, False]
    assert steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 2, 3, 10, 11, 11, 12]
    assert imported.environment == Environment(id="pointmaze-medium-singletask-task1-v0")
    assert not any("no rewards" in note for note in imported.notes)
    with pytest.raises(DataError, match="has no 'qpos', from which the rewards of scene-singletask-task2-v0 follow"):
        read(write(tmp_path / "bare", observations=qpos, actions=qpos, terminals=np.arange(7) == 6), task="scene-singletask-v0")
    with pytest.raises(DataError, match=r"has 2 positions in qpos, of which the task scene-singletask-task2-v0 needs 25"):
        read(path, task="scene-play-singletask-v0")
    with pytest.raises(DataError, match=r"has no button_states, and the task puzzle-3x3-singletask-task4-v0 is about 9 buttons"):
        read(path, task="puzzle-3x3-play-singletask-v0")


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ("pointmaze-medium-navigate-v0", "'pointmaze-medium-navigate-v0' is no single task of OGBench"),
        ("cube-singel-play-singletask-v0", "no single tasks in 'cube-singel'; did you mean 'cube-single'"),
        ("cube-single-play-singletask-task6-v0", "is no task: OGBench has the tasks 1 to 5 in cube-single"),
    ],
)
def test_ogbench_a_task_that_is_none_is_refused(tmp_path: Path, task: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(write(tmp_path / "file", **locomotion()), task=task)


def test_a_folder_of_slices_is_one_dataset_without_its_validation_splits(tmp_path: Path) -> None:
    for name in ("cube-v0-001", "cube-v0-000", "cube-v0-000-val"):
        arrays = {"observations": np.full((4, 2), len(name), "f4"), "actions": np.zeros((4, 1), "f4")}
        np.savez(tmp_path / f"{name}.npz", **arrays, terminals=np.arange(4) == 3)
    assert [path.name for path in parts_of(tmp_path)] == ["cube-v0-000.npz", "cube-v0-001.npz"]
    (tmp_path / "scene-v0-000.npz").write_bytes((tmp_path / "cube-v0-000.npz").read_bytes())
    assert parts_of(tmp_path) == []  # of two names: who is meant is said file by file
