"""Node maps of a cluster: built while trials hold every CPU, the same bytes on every node, bounded, kept in use, repaired."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError, StorageError
from d3ray.platform.cluster.session import ray_session
from d3ray.platform.driver.node_maps import NodeMap, _check_same, prepare_node_maps


@ray.remote(num_cpus=1)
class Trial:
    def pid(self) -> int:
        return os.getpid()

    def hold(self, where: str) -> None:
        """Maps a dataset for as long as the trial lives."""
        self.held = [*getattr(self, "held", []), Dataset.open(where).columns]

    def columns(self, where: str) -> dict[str, np.ndarray]:
        """What a trial maps, copied to be sent."""
        return {name: np.array(column) for name, column in Dataset.open(where).columns.items()}


LIMIT = 150_000  # bytes of each node's cache: two maps of these tests, not three


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Generator[list[Path]]:
    """A cluster of two nodes of one CPU each, and the folders that they cache in."""
    folders = [tmp_path_factory.mktemp("node") / "cache" for _ in range(2)]
    variables = [{"D3RAY_CACHE": str(folder), "D3RAY_CACHE_LIMIT": str(LIMIT)} for folder in folders]
    arguments = [{"num_cpus": 1, "env_vars": given} for given in variables]
    Path("/tmp/ray").mkdir(exist_ok=True)  # without it Ray's own tests' cluster does not start
    cluster = Cluster(initialize_head=True, head_node_args=arguments[0])
    try:
        cluster.add_node(**arguments[1])
        cluster.wait_for_nodes()
        with ray_session(address=cluster.address):
            yield folders
    finally:
        cluster.shutdown()


def walk(seed: int) -> Dataset:
    """A map of about 55,000 bytes."""
    random = np.random.default_rng(seed)
    ends = np.arange(1, 2001) % 50 == 0
    return Dataset.from_arrays(random.normal(size=(2000, 3)), random.integers(0, 2, 2000), random.normal(size=2000), ends)


def hold_every_cpu() -> list:
    trials = [Trial.remote() for _ in range(2)]  # pyright: ignore
    ray.wait([trial.__ray_ready__.remote() for trial in trials], num_returns=2)
    assert ray.available_resources().get("CPU", 0) == 0
    return trials


def end(trials: list) -> None:
    pids = ray.get([trial.pid.remote() for trial in trials])
    for trial in trials:
        ray.kill(trial)
    while any(map(psutil.pid_exists, pids)):  # Ray gives a CPU back before its process, and what that has mapped, is gone
        time.sleep(0.1)
    while ray.available_resources().get("CPU", 0) < 2:
        time.sleep(0.1)


def raw_bytes(cache: Path, dataset: Dataset) -> dict[str, str]:
    """SHA-256 of every column's file of a map."""
    files = cache.glob(f"node_maps/{dataset.fingerprint}/*.raw")
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def maps(cache: Path) -> set[str]:
    return {path.name for path in (cache / "node_maps").iterdir() if path.is_dir()}


@pytest.mark.long
@pytest.mark.timeout(200)
def test_every_node_builds_its_map_while_trials_hold_every_cpu(caches: list[Path], tmp_path: Path) -> None:
    in_memory, where = walk(0), tmp_path / "set"
    in_memory.write(where, n_shards=3)
    trials = hold_every_cpu()
    only_seen = prepare_node_maps(where, mapped=False)  # as for trials that stream
    assert [found.fingerprint for found in only_seen] == [in_memory.fingerprint] * 2
    assert not any(raw_bytes(cache, in_memory) for cache in caches)

    made = prepare_node_maps(where, resources={"CPU": 1, "GPU": 0})
    assert {found.node for found in made} == {node["NodeID"] for node in ray.nodes()}
    assert [found.fingerprint for found in made] == [in_memory.fingerprint] * 2
    files = [file for cache in caches for file in cache.glob(f"node_maps/{in_memory.fingerprint}/*.raw")]
    assert sorted(file.stem for file in files) == sorted([*in_memory.columns] * 2)
    built = [file.stat().st_mtime_ns for file in files]
    assert raw_bytes(caches[0], in_memory) == raw_bytes(caches[1], in_memory)

    prepare_node_maps(where)
    for columns in ray.get([trial.columns.remote(str(where)) for trial in trials]):
        for name, column in columns.items():
            np.testing.assert_array_equal(column, in_memory.columns[name])
    assert [file.stat().st_mtime_ns for file in files] == built  # the same maps, not others

    end(trials)
    with pytest.raises(DataError, match="There is no dataset folder"):
        prepare_node_maps(tmp_path / "nothing")
    (where / "data-00001-of-00003.arrow").write_bytes(b"")
    with pytest.raises(DataError, match=r"data-00001-of-00003\.arrow is truncated"):
        prepare_node_maps(where)
    with pytest.raises(ConfigError, match="has the resources of one trial, 1 GPU: the largest have 0 GPU"):
        prepare_node_maps(where, resources={"GPU": 1})


@pytest.mark.long
@pytest.mark.timeout(400)
def test_each_node_evicts_what_was_used_longest_ago_and_nothing_in_use_and_repairs(caches: list[Path], tmp_path: Path) -> None:
    sets = [walk(seed) for seed in range(1, 4)]
    places = [tmp_path / f"set {k}" for k in range(3)]
    for data, place in zip(sets, places, strict=True):
        data.write(place, n_shards=2)
    a, b, c = (data.fingerprint for data in sets)
    prepare_node_maps(places[0])
    prepare_node_maps(places[1])
    assert [maps(cache) for cache in caches] == [{a, b}] * 2  # that of the other test is gone
    size = json.loads((caches[0] / "node_maps" / a / "map.json").read_text())["bytes"]
    assert 2 * size < LIMIT < 3 * size

    trials = hold_every_cpu()
    ray.get([trial.hold.remote(str(places[0])) for trial in trials])
    for cache in caches:  # used longest ago, but trials have it mapped
        os.utime(cache / "node_maps" / a / "in-use", (1000, 1000))
    prepare_node_maps(places[2])
    assert [maps(cache) for cache in caches] == [{a, c}] * 2
    ray.get([trial.hold.remote(str(places[2])) for trial in trials])
    with pytest.raises(StorageError, match=r"^On the node .*: A node map of .* has no room in .*: maps of .* bytes are in use"):
        prepare_node_maps(places[1])
    assert [maps(cache) for cache in caches] == [{a, c}] * 2

    damaged = caches[1] / "node_maps" / c / "reward.raw"
    content = bytearray(damaged.read_bytes())
    content[77] ^= 1
    damaged.write_bytes(content)
    prepare_node_maps(places[2])  # built anew, even while the damaged one is mapped
    assert raw_bytes(caches[0], sets[2]) == raw_bytes(caches[1], sets[2]) != {}
    assert damaged.read_bytes() == sets[2].columns["reward"].tobytes()
    end(trials)
    prepare_node_maps(places[1])
    assert all(b in maps(cache) for cache in caches)


@pytest.mark.long
@pytest.mark.timeout(200)
def test_maps_of_several_datasets_are_there_before_trials_that_hold_every_cpu_ask(caches: list[Path], tmp_path: Path) -> None:
    sets = [walk(seed) for seed in range(11, 14)]
    places = [tmp_path / f"set {k}" for k in range(3)]
    for data, place in zip(sets, places, strict=True):
        data.write(place, n_shards=2)
    trials = hold_every_cpu()
    made = prepare_node_maps(*places[:2], resources={"CPU": 1})  # two fit into a cache; what others left goes
    names = [data.fingerprint for data in sets]
    assert [found.fingerprint for found in made] == [names[0]] * 2 + [names[1]] * 2
    assert len({(found.node, found.fingerprint) for found in made}) == 4
    assert [maps(cache) for cache in caches] == [set(names[:2])] * 2
    built = [file.stat().st_mtime_ns for cache in caches for file in cache.glob("node_maps/*/*.raw")]
    for place in places[:2]:
        ray.get([trial.hold.remote(str(place)) for trial in trials])
    assert [file.stat().st_mtime_ns for cache in caches for file in cache.glob("node_maps/*/*.raw")] == built
    end(trials)
    with pytest.raises(StorageError, match=r"On the node .*: A node map of .* has no room"):  # said now, not by a trial later
        prepare_node_maps(*places)


def test_nodes_that_see_different_datasets_are_refused() -> None:
    maps = [NodeMap(f"node {k}", f"10.0.0.{k}", fingerprint, 0.0) for k, fingerprint in enumerate(["a" * 64, "a" * 64, "b" * 64])]
    _check_same(maps[:2])
    with pytest.raises(DataError, match=r"10\.0\.0\.0 and 10\.0\.0\.2 have different datasets"):
        _check_same(maps)
    _check_same(maps[:2], "a" * 64)
    with pytest.raises(DataError, match=r"The node 10\.0\.0\.0 has another .* than the machine of this command \(.* a+ and b+\)"):
        _check_same(maps[:2], "b" * 64)
