"""`examples/ingest_cs285.py`, on pickles made here and real ones: time limit, clipped actions, the folder that it writes."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError

SCRIPT = Path(__file__).parents[2] / "examples" / "ingest_cs285.py"
REAL = os.environ.get("D3RAY_TEST_DATA")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ingest_cs285", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def path_of(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(n + 1, 4))
    actions = rng.uniform(-0.5, 0.5, (n, 2)).astype(np.float32)
    terminal = np.arange(n) == n - 1
    return {
        "observation": seen[:-1],
        "action": actions,
        "reward": np.full(n, 2.0),
        "next_observation": seen[1:],
        "terminal": terminal,
    }


def test_the_time_limit_truncates_and_actions_are_clipped(script: ModuleType, tmp_path: Path) -> None:
    paths = [path_of(5, 0), path_of(3, 1), path_of(2, 2)]
    paths[0]["action"][1] = 1.5, -3
    paths[2]["terminal"][:] = False
    (tmp_path / "file.pkl").write_bytes(pickle.dumps(paths))
    dataset, clipped = script.read_cs285(tmp_path / "file.pkl", "Hopper-v4", timeout_at=5)
    assert clipped == 2
    assert dataset.columns["action"][1].tolist() == [1, -1]
    assert dataset.episodes.steps.tolist() == [5, 3, 2]
    assert dataset.episodes.terminated.tolist() == [False, True, False]
    assert dataset.episodes.final_recorded.all()
    assert dataset.episodes.returns.tolist() == [10, 6, 4]
    np.testing.assert_array_equal(dataset.columns["observation"][5], paths[0]["next_observation"][-1].astype(np.float32))


def test_other_pickles_are_refused(script: ModuleType, tmp_path: Path) -> None:
    for value in ([], {"a": 1}, [{"observation": np.ones(2)}], [path_of(2, 0) | {"reward": np.ones(3)}]):
        (tmp_path / "file.pkl").write_bytes(pickle.dumps(value))
        with pytest.raises(DataError, match=r"file\.pkl (does not hold a list of paths|has a path whose arrays)"):
            script.read_cs285(tmp_path / "file.pkl", "Hopper-v4")


@pytest.mark.skipif(REAL is None, reason="D3RAY_TEST_DATA does not name the folder with real data")
@pytest.mark.parametrize(
    ("environment", "shapes", "mean_return", "clipped"),
    [("Hopper-v4", (11, 3), 3717, 2623), ("HalfCheetah-v4", (17, 6), 4035, 2346)],
)
def test_real_expert_data(tmp_path: Path, environment: str, shapes: tuple[int, int], mean_return: float, clipped: int) -> None:
    source = Path(str(REAL)) / "cs285" / f"expert_data_{environment}.pkl"
    done = subprocess.run([sys.executable, SCRIPT, source, tmp_path / "out"], capture_output=True, text=True, check=True)
    assert f"2000 transitions in 2 episodes of {environment}" in done.stdout
    assert "terminated 0, truncated 2" in done.stdout
    assert f"actions: {clipped} of {2000 * shapes[1]} entries were outside [-1, 1]" in done.stdout
    dataset = Dataset.open(tmp_path / "out")
    assert dataset.environment is not None
    assert (dataset.environment.id, dataset.n_transitions, dataset.cuts) == (environment, 2000, 0)
    assert (dataset.columns["observation"].shape[1], dataset.columns["action"].shape[1]) == shapes
    assert dataset.episodes.returns.mean() == pytest.approx(mean_return, abs=1)
    assert np.abs(dataset.columns["action"]).max() == 1


def test_a_file_that_is_not_there_ends_in_one_sentence_and_2(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, tmp_path / "expert_data_Hopper-v4.pkl", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"There is no file {command[2]}.\n")
    assert not (tmp_path / "out").exists()
