"""Node maps are built while trials hold every CPU and nothing is cached, and what a node cannot do is said."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.platform.node_maps import NodeMap, _check_same, prepare_node_maps
from d3ray.platform.session import ray_session


@ray.remote(num_cpus=1)
class Trial:
    def columns(self, where: str) -> dict[str, np.ndarray]:
        """What a trial maps, copied to be sent."""
        return {name: np.array(column) for name, column in Dataset.open(where).columns.items()}


@pytest.fixture
def caches(tmp_path: Path) -> Generator[list[Path]]:
    """A cluster of two nodes of one CPU each, and the folders that they cache in."""
    folders = [tmp_path / "cache 0", tmp_path / "cache 1"]
    arguments = [{"num_cpus": 1, "env_vars": {"D3RAY_CACHE": str(folder)}} for folder in folders]
    Path("/tmp/ray").mkdir(exist_ok=True)  # without it Ray's own tests' cluster does not start
    cluster = Cluster(initialize_head=True, head_node_args=arguments[0])
    try:
        cluster.add_node(**arguments[1])
        cluster.wait_for_nodes()
        with ray_session(address=cluster.address):
            yield folders
    finally:
        cluster.shutdown()


@pytest.mark.timeout(200)
def test_every_node_builds_its_map_while_trials_hold_every_cpu(caches: list[Path], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    ends = np.arange(1, 2001) % 50 == 0
    in_memory = Dataset.from_arrays(random.normal(size=(2000, 3)), random.integers(0, 2, 2000), random.normal(size=2000), ends)
    where = tmp_path / "set"
    in_memory.write(where, n_shards=3)
    trials = [Trial.remote() for _ in range(2)]  # pyright: ignore
    ray.wait([trial.__ray_ready__.remote() for trial in trials], num_returns=2)
    assert ray.available_resources().get("CPU", 0) == 0
    assert not any(cache.exists() for cache in caches)

    made = prepare_node_maps(where, resources={"CPU": 1, "GPU": 0})
    assert {found.node for found in made} == {node["NodeID"] for node in ray.nodes()}
    assert [found.fingerprint for found in made] == [in_memory.fingerprint] * 2
    files = [file for cache in caches for file in cache.glob(f"node_maps/{in_memory.fingerprint}/*.raw")]
    assert sorted(file.stem for file in files) == sorted([*in_memory.columns] * 2)
    built = [file.stat().st_mtime_ns for file in files]

    prepare_node_maps(where)
    for columns in ray.get([trial.columns.remote(str(where)) for trial in trials]):
        for name, column in columns.items():
            np.testing.assert_array_equal(column, in_memory.columns[name])
    assert [file.stat().st_mtime_ns for file in files] == built  # the same maps, not others

    with pytest.raises(DataError, match="There is no dataset folder"):
        prepare_node_maps(tmp_path / "nothing")
    (where / "data-00001-of-00003.arrow").write_bytes(b"")
    with pytest.raises(DataError, match=r"data-00001-of-00003\.arrow is truncated"):
        prepare_node_maps(where)
    with pytest.raises(ConfigError, match="No node of the Ray cluster has the resources of one trial: 1 GPU"):
        prepare_node_maps(where, resources={"GPU": 1})


def test_nodes_that_see_different_datasets_are_refused() -> None:
    maps = [NodeMap(f"node {k}", f"10.0.0.{k}", fingerprint, 0.0) for k, fingerprint in enumerate(["a" * 64, "a" * 64, "b" * 64])]
    _check_same(maps[:2])
    with pytest.raises(DataError, match=r"10\.0\.0\.0 and 10\.0\.0\.2 have different datasets"):
        _check_same(maps)
