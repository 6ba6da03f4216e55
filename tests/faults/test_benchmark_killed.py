"""A benchmark is killed in the middle: `--resume` comes to the same scores, byte for byte, as one that nobody disturbed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .cluster import LocalCluster
from .processes import alive, kill, until
from .runs import ALGORITHM, Runs, assert_equal_runs

EPOCH = 40
SUITE: dict[str, Any] = {
    "algorithms": [{"name": "DiscreteBC", "encoder": {"hidden_units": [16]}, "batch_size": 8}, {**ALGORITHM, "label": "Q"}],
    "seeds": [0, 1],
    "seeds_per_trial": 1,
    "n_steps": 3 * EPOCH,
    "n_steps_per_epoch": EPOCH,
    "evaluation": {"episodes": 2},
}


@pytest.fixture
def suite(cluster: LocalCluster, tiny: Path, tmp_path: Path) -> Iterator[dict[str, Runs]]:
    """The benchmark of a suite, to be run twice."""
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps({**SUITE, "datasets": [str(tiny)]}))
    settings = {"suite": str(file), "plugins": ["d3ray_holds"]}
    env = cluster.environment()
    made = {name: Runs(tmp_path / name, {**settings, "name": name}, env, job="benchmark") for name in ("undisturbed", "disturbed")}
    yield made
    for runs in made.values():
        runs.end()


def scores(runs: Runs) -> bytes:
    return (runs.storage / runs.name / "report" / "scores.csv").read_bytes()


def test_a_killed_benchmark_comes_to_the_same_scores(cluster: LocalCluster, suite: dict[str, Runs]) -> None:
    undisturbed, disturbed = suite["undisturbed"], suite["disturbed"]
    command = undisturbed.start()
    assert command.wait() == 0, command.log.read_text()
    assert scores(undisturbed).count(b"\n") == 1 + 4  # a line a run
    held = disturbed.hold("parts", 2 * EPOCH, 0)
    command = disturbed.start()
    command.until(lambda: disturbed.reached(held))
    worker = disturbed.worker(held[0])
    kill(command.process.pid)
    until(lambda: not alive(worker), cluster.logs)  # Ray ends it
    assert disturbed.committed().count(3 * EPOCH) < 4  # in the middle
    assert not (disturbed.storage / "disturbed" / "report").exists()
    disturbed.release(held)
    again = disturbed.start("--resume")
    assert again.wait() == 0, again.log.read_text()
    assert scores(disturbed) == scores(undisturbed)
    assert_equal_runs(undisturbed, disturbed)
