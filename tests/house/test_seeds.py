"""Seeds that the learning table trains online as one stack, beside the same seeds alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray.algos.online.run import OnlineRun
from d3ray.algos.registry import make_algorithm

FILE = Path(__file__).parents[2] / "benchmarks" / "seeds.py"
SMALL: dict[str, Any] = {"hidden_units": [8]}
NAMES = ("DQN", "Rainbow")  # the latter draws by errors and explores by noise


@pytest.fixture(scope="module")
def seeds() -> Any:
    spec = importlib.util.spec_from_file_location("seeds", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_a_row_learns_online_what_its_seed_learns_alone(seeds: Any, name: str):
    algorithm = {"name": name, "batch_size": 4, "target_update_interval": 3, "learning_rate": 1e-2, "encoder": SMALL}
    online: dict[str, Any] = {"n_envs": 2, "update_interval": 4, "n_updates": 4, "update_start_step": 12}
    online["explorer"] = "policy" if name == "Rainbow" else "greedy"
    with seeds.OnlineStack(algorithm, [3, 5], "CartPole-v1", **online) as stack:
        stack.advance(12)
        for run, seed in zip(stack.runs, (3, 5), strict=True):
            with OnlineRun(make_algorithm(algorithm, seed=seed), "CartPole-v1", **online) as alone:
                for _ in alone.epochs(12, 12):
                    pass
                assert alone.rollout.steps == run.rollout.steps == 20
                for column, values in alone.buffer.columns.items():
                    np.testing.assert_array_equal(run.buffer.columns[column], values, err_msg=column)
                seen = alone.buffer.columns["observation"][:20]
                theirs = alone.algorithm.predict_value(seen, np.zeros(20, np.int64))
                np.testing.assert_allclose(run.algorithm.predict_value(seen, np.zeros(20, np.int64)), theirs, rtol=1e-4, atol=1e-5)
                assert np.ptp(theirs) > 1e-3
