"""Pickled paths: names and ends of several scripts' files, time limits, clipped actions, and pickles that hold code."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.data.formats.registry import detect, read

from .bombs import Calls

REAL = os.environ.get("D3RAY_TEST_DATA")


def cs285(n: int, seed: int) -> dict[str, Any]:
    """A path as CS285's rollouts have it: whatever stopped it, the last step is terminal."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(n + 1, 4))
    return {
        "observation": seen[:-1],
        "image_obs": [],
        "action": rng.uniform(-0.5, 0.5, (n, 2)).astype(np.float32),
        "reward": np.full(n, 2.0),
        "next_observation": seen[1:],
        "terminal": np.arange(n) == n - 1,
    }


def write(path: Path, value: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
def test_cs285_with_its_time_limit(tmp_path: Path, protocol: int) -> None:
    paths = [cs285(5, 0), cs285(3, 1), cs285(2, 2)]
    paths[2]["terminal"][:] = False
    path = write(tmp_path / "file", paths, protocol)
    assert detect(path) == "pickled_paths"
    imported = read(path, timeout_at=5)
    steps = imported.steps
    assert steps.steps.tolist() == [5, 3, 2]
    assert steps.terminated.tolist() == [False, True, False]
    assert (steps.final_recorded.all(), steps.cuts, steps.returns.tolist()) == (True, 0, [10, 6, 4])
    np.testing.assert_array_equal(steps.columns["observation"][5], paths[0]["next_observation"][-1].astype(np.float32))
    assert "Left out of each path: image_obs." in imported.notes
    assert read(path).steps.terminated.tolist() == [True, True, False]


def test_many_paths_of_one_length_that_end_terminated_are_named(tmp_path: Path) -> None:
    imported = read(write(tmp_path / "file", [cs285(4, k) for k in range(3)]))
    assert any("import with timeout_at=4" in note for note in imported.notes)


def test_decision_transformers_files_cut_at_timeouts_without_saying_so(tmp_path: Path) -> None:
    def path_of(n: int, terminal: bool) -> dict[str, Any]:
        seen = np.arange(n + 1, dtype=np.float32)[:, None] + 100 * n
        return {
            "observations": seen[:-1],
            "next_observations": seen[1:],
            "actions": np.zeros((n, 2), np.float32),
            "rewards": np.ones(n, np.float32),
            "terminals": np.arange(n) == (n - 1 if terminal else -1),
        }

    (tmp_path / "file").write_bytes(gzip.compress(pickle.dumps([path_of(3, True), path_of(4, False), path_of(2, False)])))
    assert detect(tmp_path / "file") == "pickled_paths"
    steps = read(tmp_path / "file").steps
    assert steps.steps.tolist() == [3, 4, 2]
    assert steps.terminated.tolist() == [True, False, False]
    assert steps.columns["observation"][:, 0].tolist() == [300, 301, 302, 303, 400, 401, 402, 403, 404, 200, 201, 202]


def test_one_flat_dict_with_timeouts_and_a_jump(tmp_path: Path) -> None:
    seen = np.array([[0.0], [1], [2], [10], [11], [20]])
    flat = {
        "observations": seen,
        "next_observations": np.array([[1.0], [2], [3], [11], [12], [21]]),
        "actions": np.zeros((6, 1)),
        "rewards": np.arange(6.0),
        "terminals": np.array([0, 0, 0, 0, 1, 0]),
        "timeouts": np.array([0, 0, 0, 0, 0, 1]),
    }
    steps = read(write(tmp_path / "file", flat)).steps
    assert (steps.steps.tolist(), steps.terminated.tolist(), steps.cuts) == ([3, 2, 1], [False, True, False], 1)


def test_one_more_observation_than_steps_and_a_terminal_for_the_whole_path(tmp_path: Path) -> None:
    paths = [
        {"obs": np.arange(4.0)[:, None], "acts": np.array([0, 1, 2]), "rews": np.ones(3), "terminal": True},
        {"obs": np.arange(3.0)[:, None], "acts": np.array([1, 1]), "rews": np.ones(2), "terminal": False},
    ]
    steps = read(write(tmp_path / "file", paths)).steps
    assert steps.terminated.tolist() == [True, False]
    assert steps.columns["observation"][:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert steps.columns["action"].dtype == np.int64
    assert steps.final_recorded.all()


def test_dict_observations_and_no_terminals(tmp_path: Path) -> None:
    paths = [{"observations": {"a": np.ones((2, 3)), "b": {"c": np.zeros(2)}}, "actions": [[0.5], [0.25]], "rewards": [1, 2]}]
    imported = read(write(tmp_path / "file", paths * 2))
    assert imported.steps.steps.tolist() == [2, 2]  # nothing but the end of a path says so
    assert imported.steps.columns["observation/a"].shape == (6, 3)
    assert not imported.steps.final_recorded.any()
    assert "The paths have no terminals: each was taken as truncated where it ends." in imported.notes
    renamed = [{"observations": np.ones((2, 3)), "actions": np.ones((2, 1)), "r": np.ones(2), "terminals": np.zeros(2)}]
    path = write(tmp_path / "file", renamed)
    assert read(path, "pickled_paths", rename={"rewards": "r"}).steps.returns.tolist() == [2]


def test_code_is_refused_and_not_run(tmp_path: Path) -> None:
    for data in (
        pickle.dumps([Calls(Path.touch, tmp_path / "ran")]),
        gzip.compress(pickle.dumps([cs285(2, 0), Calls(Path.touch, tmp_path / "ran")])),
    ):
        (tmp_path / "file").write_bytes(data)
        with pytest.raises(DataError, match=r"file names pathlib\.[\w.]+; only NumPy arrays and plain containers"):
            read(tmp_path / "file")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"file holds nothing, not a list of paths"),
        (3.5, r"file holds a float, not a list of paths"),
        ([1, 2], r"file holds a list, not a list of paths"),
        ([{"observation": np.ones((2, 1))}], r"file: a path has no 'actions' or 'acts' or 'action', only 'observation'\.$"),
        ([cs285(2, 0), {}], r"file: path 1 has no 'observation', which the first has\.$"),
        ([cs285(2, 0) | {"action": np.ones((3, 2))}], r"file: path 0: 'reward' has 2 rows, but 'action' has 3\.$"),
        ([cs285(2, 0) | {"terminal": np.ones(3)}], r"file: path 0 has 2 steps, but 'terminal' has 3 rows\.$"),
        ([cs285(2, 0) | {"terminal": np.array([0, 3])}], r"file: path 0: 'terminal' is 3 in row 1; flags are 0 or 1\.$"),
        ([cs285(2, 0) | {"reward": np.array([1, np.nan])}], r"file: path 0: 'reward' has NaN in row 1\.$"),
        ([cs285(2, 0) | {"reward": np.array([])}], r"file: path 0 has no steps\.$"),
        ([cs285(2, 0) | {"action": np.array(["a", "b"])}], r"file: path 0: 'action' holds <U1, not numbers\.$"),
        (
            [cs285(2, 0), cs285(2, 0) | {"action": np.ones((2, 3))}],
            r"path 1: 'actions' has entries of shape \[3\], and in .*path 0 of \[2\]\.$",
        ),
        (
            [cs285(2, 0), cs285(2, 0) | {"observation": {"a": np.ones(2)}}],
            r"path 1 has other arrays than .*path 0: only one of them has 'observations'",
        ),
    ],
)
def test_other_pickles_are_refused(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / "file", value), "pickled_paths")


@pytest.mark.skipif(REAL is None, reason="D3RAY_TEST_DATA does not name the folder with real data")
@pytest.mark.parametrize(
    ("environment", "shapes", "mean_return", "clipped"),
    [("Hopper-v4", (11, 3), 3717, 2623), ("HalfCheetah-v4", (17, 6), 4035, 2346)],
)
def test_real_expert_data_through_the_command(
    tmp_path: Path, environment: str, shapes: tuple[int, int], mean_return: float, clipped: int
) -> None:
    source = Path(str(REAL)) / "cs285" / f"expert_data_{environment}.pkl"
    options = ["timeout_at=1000", "actions=clip", f"environment={environment}"]
    command = [sys.executable, "-m", "d3ray.jobs", "ingest", source, tmp_path / "out", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)  # MuJoCo leaves its log there
    assert "2,000 transitions in 2 episodes" in done.stdout
    assert "2 episodes that ended terminated after exactly 1000 steps were taken as truncated" in done.stdout + done.stderr
    dataset = Dataset.open(tmp_path / "out")
    assert dataset.environment is not None
    assert (dataset.environment.id, dataset.n_transitions, dataset.cuts) == (environment, 2000, 0)
    assert (dataset.columns["observation"].shape[1], dataset.columns["action"].shape[1]) == shapes
    assert not dataset.episodes.terminated.any()
    assert dataset.episodes.final_recorded.all()
    assert dataset.episodes.returns.mean() == pytest.approx(mean_return, abs=1)
    assert np.abs(dataset.columns["action"]).max() == 1
    raw = read(source).steps
    beyond = (np.abs(raw.columns["action"]) > 1) & ~raw.columns["closing"][:, None]
    assert int(beyond.sum()) == clipped
