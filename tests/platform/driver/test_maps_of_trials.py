"""What an experiment maps, where, and how often: a head without CPUs beside one worker, whose trials go side by side."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from ray.cluster_utils import Cluster

from d3ray import Dataset
from d3ray.platform.cluster.session import ray_session
from d3ray.platform.driver.node_maps import prepare_node_maps
from d3ray.platform.experiment.run import run_experiment
from d3ray.platform.results.progress import Progress
from d3ray.platform.settings.config import ExperimentConfig

from ..object_store import object_store

KEYS = "tester:secret@"


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Path, Path]]:
    """A cluster of a head without CPUs, where this process runs, and a worker of two; the folders that they cache in."""
    head, worker = (tmp_path_factory.mktemp("node") / "cache" for _ in range(2))
    Path("/tmp/ray").mkdir(exist_ok=True)  # without it Ray's own tests' cluster does not start
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "env_vars": {"D3RAY_CACHE": str(head)}})
    try:
        cluster.add_node(num_cpus=2, env_vars={"D3RAY_CACHE": str(worker)})
        cluster.wait_for_nodes()
        with ray_session(address=cluster.address), pytest.MonkeyPatch.context() as patch:
            patch.setenv("D3RAY_CACHE", str(head))
            yield head, worker
    finally:
        cluster.shutdown()


def maps(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("node_maps/*") if path.is_dir())


def walk(n: int) -> Dataset:
    rng = np.random.default_rng(0)
    return Dataset.from_arrays(rng.normal(size=(n, 3)), rng.integers(0, 2, n), rng.normal(size=n), np.arange(n) % 50 == 49)


@pytest.mark.long
@pytest.mark.timeout(200)
def test_the_head_maps_nothing_and_one_map_serves_every_trial_of_a_node(
    caches: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    head, worker = caches
    data = walk(4000).write(tmp_path / "set", n_shards=3)
    algorithm: dict[str, Any] = {"name": "DiscreteBC", "encoder": {"hidden_units": [8]}, "batch_size": 16}
    config = ExperimentConfig.checked(
        {
            "dataset": str(tmp_path / "set"),
            "algorithm": algorithm,
            "n_steps": 3000,
            "n_steps_per_epoch": 150,
            "seeds": (0, 1),
            "seeds_per_trial": 1,
            "resources": {"cpu": 1},
            "evaluation": None,
            "name": "maps",
            "storage": str(tmp_path / "results"),
        }
    )
    mapped, built = set[tuple[int, int]](), set[int]()  # processes and the files that they map; when these were written

    def look(progress: Progress) -> None:
        for file in worker.glob("node_maps/*/reward.raw"):
            built.add(file.stat().st_mtime_ns)
            for process in psutil.process_iter(["name"]):
                if process.info["name"].startswith("ray::"):
                    with suppress(OSError):  # it may have ended by now
                        if str(file) in Path(f"/proc/{process.pid}/maps").read_text():
                            mapped.add((process.pid, file.stat().st_ino))

    result = run_experiment(config, on_progress=look)
    assert [one.status for one in result.seeds] == ["FINISHED"] * 2
    assert maps(head) == []
    assert maps(worker) == [data.fingerprint]
    assert len({pid for pid, _ in mapped}) == 2  # each trial, in a process of its own
    assert len({inode for _, inode in mapped}) == len(built) == 1


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_map_that_takes_long_says_how_far_it_is(
    caches: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("obstore")
    with object_store() as store:
        where = store.uri("set").replace("s3://", f"s3://{KEYS}")
        data = walk(40_000)
        data.write(where, n_shards=6)
        store.delay = 0.8  # seconds an answer
        prepare_node_maps(where, resources={"CPU": 1})
        store.delay = 0.0
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("mapping data on 1 node: ")]
    size = sum(column.nbytes for column in data.columns.values()) / 1e6
    assert lines
    assert all(f"of {size:,.1f} MB" in line for line in lines)
    assert data.fingerprint in maps(caches[1])
    assert json.loads((caches[1] / "node_maps" / data.fingerprint / "map.json").read_text())["bytes"] == size * 1e6
