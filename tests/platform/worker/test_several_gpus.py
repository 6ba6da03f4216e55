"""A trial with two GPUs trains one model in two processes: what one process would, also where one of them is killed.

The GPUs are there by name only: gradients go over gloo between two processes on the CPU.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray import tune

from d3ray import Dataset
from d3ray.algos.saving.checkpoint import read_checkpoint
from d3ray.algos.testing import largest_difference
from d3ray.data.errors import ConfigError
from d3ray.platform.cluster.gpus import BY_NAME_ONLY
from d3ray.platform.cluster.session import ray_session
from d3ray.platform.experiment.run import run_experiment, train_work
from d3ray.platform.planning.plan import plan
from d3ray.platform.settings.config import ExperimentConfig
from d3ray.platform.trainable import trainable

from ...faults.processes import alive

N_STEPS, EPOCH = 60, 20
PLUGIN = """
import json, os, signal
from pathlib import Path
from torch import distributed as dist
from d3ray import DQN
from d3ray.algos.registry import register_algorithm

PLACE = Path(__file__).parent

@register_algorithm
class Pair(DQN):
    def schedule(self, step):
        rank = dist.get_rank() if dist.is_initialized() else None
        if step == 30:
            with (PLACE / "seen.jsonl").open("a") as file:
                seen = {"pid": os.getpid(), "rank": rank, "device": os.environ["CUDA_VISIBLE_DEVICES"]}
                file.write(json.dumps(seen) + "\\n")
            if (PLACE / f"kill-{rank}").exists():
                (PLACE / f"kill-{rank}").unlink()
                os.kill(os.getpid(), signal.SIGKILL)
            if (PLACE / f"raise-{rank}").exists():
                raise ValueError("a loss that fails")
        return super().schedule(step)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a dataset and a plugin, and a Ray with two CPUs and two GPUs that are there by name only."""
    folder = tmp_path_factory.mktemp("pair")
    rng = np.random.default_rng(0)
    ends = np.arange(1, 401) % 20 == 0
    arrays = rng.normal(size=(400, 4)).astype(np.float32), rng.integers(0, 2, 400), np.ones(400, np.float32), ends
    Dataset.from_arrays(*arrays, name="tiny").write(folder / "tiny")
    (folder / "pair_plugin.py").write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
        patch.syspath_prepend(folder)
        patch.setenv(BY_NAME_ONLY, "1")
        with ray_session(address="local", num_cpus=2, num_gpus=2):
            yield folder
    sys.modules.pop("pair_plugin", None)


def config(place: Path, name: str, gpu: float = 2, **changes: Any) -> ExperimentConfig:
    base: dict[str, Any] = {
        "name": name,
        "dataset": str(place / "tiny"),
        "algorithm": {"name": "Pair", "encoder": {"hidden_units": [16]}, "batch_size": 22, "sampler": "prioritized"},
        "n_steps": N_STEPS,
        "n_steps_per_epoch": EPOCH,
        "seeds": (3,),
        "resources": {"cpu": 1, "gpu": gpu},
        "evaluation": {"holdout": 0.2, "episodes": 1, "scorers": ["td_error"]},
        "storage": str(place / "results"),
        "plugins": ("pair_plugin",),
    }
    return ExperimentConfig.checked({**base, **changes})


def trained(place: Path, name: str, gpu: float = 2) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    """How an experiment's seed ended, its last checkpoint, and what its processes saw in the middle."""
    (place / "seen.jsonl").unlink(missing_ok=True)
    (seed,) = run_experiment(config(place, name, gpu)).seeds
    (trial,) = (place / "results" / name / "trials").iterdir()
    newest = max((trial / "checkpoints").glob("step-*"), default=None)
    seen = {line: json.loads(line) for line in (place / "seen.jsonl").read_text().splitlines()}
    return seed, dict(read_checkpoint(newest)[0]) if newest else {}, list(seen.values())


@pytest.fixture(scope="module")
def together(place: Path) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    return trained(place, "together")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_processes_train_the_model_of_one(place: Path, together: Any) -> None:
    ended, state, seen = together
    assert (ended.status, ended.step) == ("FINISHED", N_STEPS)
    assert sorted((one["rank"], one["device"]) for one in seen) in ([(0, "0"), (1, "1")], [(0, "1"), (1, "0")])
    alone, expected, only = trained(place, "alone", gpu=1)
    assert [one["rank"] for one in only] == [None]
    where, gap = largest_difference(state, expected)
    assert gap < 1e-6, where
    assert ended.metrics["holdout/critic_loss"] == pytest.approx(alone.metrics["holdout/critic_loss"], rel=1e-5)
    assert not alive(next(one["pid"] for one in seen if one["rank"] == 1))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_is_killed_costs_an_attempt(place: Path, together: Any, rank: int) -> None:
    (place / f"kill-{rank}").touch()
    ended, state, seen = trained(place, f"killed-{rank}")
    assert not (place / f"kill-{rank}").exists()
    assert (ended.status, ended.step) == ("FINISHED", N_STEPS)
    assert [one["rank"] for one in seen].count(rank) == 2  # it came by twice
    where, gap = largest_difference(state, together[1])
    assert gap == 0, where


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_a_peer_raises_is_the_trials_reason(place: Path) -> None:
    (place / "raise-1").touch()
    try:
        ended, _, _ = trained(place, "raised")
    finally:
        (place / "raise-1").unlink()
    assert (ended.status, ended.step) == ("FAILED", EPOCH)
    assert "ValueError: a loss that fails" in ended.reason


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_plan_is_measured_with_all_of_them(place: Path) -> None:
    (place / "seen.jsonl").unlink(missing_ok=True)
    made = plan(train_work(config(place, "planned")), seconds=20)
    assert (made.n_trials, made.at_once, made.gpu_share) == (1, 1, 2)
    assert {json.loads(line)["rank"] for line in (place / "seen.jsonl").read_text().splitlines()} == {0, 1}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"resources": {"gpu": 1.5}}, "resources.gpu is 1.5: a trial has a part of one GPU, or whole ones, as 1 or 2"),
        ({"resources": {"gpu": 4}}, "resources.gpu is 4, among which a batch_size of 22 cannot be shared evenly: choose 20"),
        ({"algorithm": {"name": "rllib/CQL"}}, "resources.gpu is 2, and rllib/CQL trains on one: RLlib's learner has one GPU"),
        ({"algorithm": {"name": "MOPO"}}, "resources.gpu is 2, and MOPO trains on one: it makes what it learns from"),
        ({"algorithm": {"name": "DQN", "compile_graph": True}}, "resources.gpu is 2, and compile_graph is for one: leave it out"),
    ],
)
def test_what_cannot_be_shared_is_refused_before_anything_starts(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    given = {"plugins": (), "evaluation": None, "resources": {"gpu": 2}, "algorithm": {"name": "DQN", "batch_size": 22}}
    with pytest.raises(ConfigError, match=re.escape(said)):
        config(tmp_path, "refused", **{**given, **changes})


def test_a_tuners_bundle_has_one_gpu(place: Path) -> None:
    about = {"dataset": str(place / "tiny"), "n_steps": 4}
    tuner = tune.Tuner(
        tune.with_resources(trainable("DQN"), {"cpu": 1, "gpu": 2}),
        param_space=about,
        run_config=tune.RunConfig(storage_path=str(place / "tuned"), verbose=0),
    )
    (result,) = tuner.fit()
    assert "d3ray/DQN has 2 GPUs in one bundle" in str(result.error)
    assert "tune.PlacementGroupFactory([{'CPU': 1, 'GPU': 1}] * 2, strategy='STRICT_PACK')" in str(result.error)
