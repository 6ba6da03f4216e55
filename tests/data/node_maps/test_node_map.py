"""Node maps: built once by whoever comes first, the same bytes everywhere, whole or not there, and bounded."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.errors import ConfigError, DataError, StorageError
from d3ray.data.node_maps import node_map

OPEN = """
import hashlib, os, sys, time
import numpy as np
from d3ray import Dataset
from d3ray.data.node_maps import node_map
data = Dataset.open(sys.argv[1])
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/node_maps"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folder of each map that this process builds."""
    made: list[str] = []
    build: Callable[..., None] = node_map._build
    monkeypatch.setattr(node_map, "_build", lambda *a: (made.append(a[2].name), build(*a)))
    return made


def walk(n: int = 500, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    images = {"camera": rng.integers(0, 255, (n, 4, 4), np.uint8), "joint": rng.normal(size=(n, 3))}
    return Dataset.from_arrays(images, rng.normal(size=(n, 2)), rng.normal(size=n), rng.random(n) < 0.05)


def hashes(entry: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in entry.glob("*.raw")}


def maps(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if path.is_dir()}


def run(code: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OPEN + textwrap.dedent(code), *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


def test_a_map_is_one_raw_file_a_column(tmp_path: Path, cache: Path) -> None:
    data = walk()
    opened = data.write(tmp_path / "it", n_shards=3, compression="zstd")
    for name, column in opened.columns.items():
        np.testing.assert_array_equal(column, data.columns[name])
        assert not column.flags.writeable
    entry = cache / data.fingerprint
    assert (entry / "observation%2Fcamera.raw").read_bytes() == data.columns["observation/camera"].tobytes()
    assert (entry / "closing.raw").stat().st_size == data.n_rows
    assert sorted(p.name for p in entry.iterdir() if p.suffix != ".raw") == ["in-use", "map.json"]


def test_maps_have_the_same_bytes_whatever_the_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, found = walk(), []
    for k, (n, compression) in enumerate([(2, None), (5, "zstd"), (1, "zstd")]):
        monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / f"cache{k}"))
        data.write(tmp_path / f"it{k}", n_shards=n, compression=compression).prepare()
        found.append(hashes(tmp_path / f"cache{k}/node_maps" / data.fingerprint))
    assert found[0] == found[1] == found[2] != {}


def test_processes_that_come_together_build_it_once(tmp_path: Path, cache: Path) -> None:
    walk(20_000).write(tmp_path / "it", n_shards=4)
    code = """
    build = node_map._build
    def counted(*a):
        with open(sys.argv[2], "a") as file:
            file.write("built\\n")
        build(*a)
    node_map._build = counted
    print("ready", flush=True)
    sys.stdin.readline()
    print(hashlib.sha256(data.columns["observation/joint"].tobytes()).hexdigest())
    """
    processes = [run(code, tmp_path / "it", tmp_path / "log") for _ in range(3)]
    for process in processes:
        assert line(process) == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    said = {process.communicate()[0] for process in processes}
    expected = hashlib.sha256(Dataset.open(tmp_path / "it").columns["observation/joint"].tobytes()).hexdigest()
    assert said == {f"{expected}\n"}
    assert (tmp_path / "log").read_text() == "built\n"


def test_a_builder_that_is_killed_leaves_nothing_that_counts(tmp_path: Path, cache: Path, builds: list[str]) -> None:
    data = walk(2000).write(tmp_path / "it", n_shards=4)
    code = """
    from d3ray.data.storage.shard_files import ShardFiles
    columns = ShardFiles.columns
    def stop(self, k, **more):
        if k == 2:
            print("half", flush=True)
            time.sleep(60)
        return columns(self, k, **more)
    ShardFiles.columns = stop
    data.columns
    """
    process = run(code, tmp_path / "it")
    assert line(process) == "half\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert maps(cache) == {f"{data.fingerprint}.building"}
    walk(100, seed=1).write(tmp_path / "other", n_shards=2).prepare()  # another dataset clears what nobody is building
    assert f"{data.fingerprint}.building" not in maps(cache)
    np.testing.assert_array_equal(data.columns["reward"], walk(2000).columns["reward"])
    assert builds.count(data.fingerprint) == 1


def test_a_map_that_is_there_is_not_built_again(tmp_path: Path, cache: Path, builds: list[str]) -> None:
    data = walk().write(tmp_path / "it", n_shards=2)
    data.prepare()
    Dataset.open(tmp_path / "it").prepare()
    walk().write(tmp_path / "elsewhere", n_shards=3).prepare()  # the same rows
    assert builds == [data.fingerprint]


@pytest.mark.parametrize("damage", ["value", "short", "missing", "plan", "in-use"])
def test_a_damaged_map_is_built_again(tmp_path: Path, cache: Path, builds: list[str], damage: str) -> None:
    data = walk().write(tmp_path / "it", n_shards=2)
    data.prepare()
    entry = cache / data.fingerprint
    before, reward = hashes(entry), entry / "reward.raw"
    match damage:
        case "value":
            content = bytearray(reward.read_bytes())
            content[100] ^= 1
            reward.write_bytes(content)
        case "short":
            os.truncate(reward, 100)
        case "missing":
            reward.unlink()
        case "plan":
            (entry / "map.json").write_text(json.dumps({"version": 1}))
        case _:
            (entry / "in-use").unlink()
    again = Dataset.open(tmp_path / "it")
    np.testing.assert_array_equal(again.columns["reward"], walk().columns["reward"])
    assert hashes(entry) == before
    assert len(builds) == 2


def test_a_map_that_was_only_touched_is_kept(tmp_path: Path, cache: Path, builds: list[str]) -> None:
    data = walk().write(tmp_path / "it", n_shards=2)
    data.prepare()
    os.utime(cache / data.fingerprint / "reward.raw", (1, 1))
    Dataset.open(tmp_path / "it").prepare()
    assert len(builds) == 1


@pytest.mark.parametrize("intact", [True, False])
def test_a_map_is_looked_through_after_a_new_start_of_the_machine(
    tmp_path: Path, cache: Path, builds: list[str], intact: bool
) -> None:
    data = walk().write(tmp_path / "it", n_shards=2)
    data.prepare()
    entry = cache / data.fingerprint
    plan, reward = json.loads((entry / "map.json").read_text()), entry / "reward.raw"
    (entry / "map.json").write_text(json.dumps(plan | {"boots": ["another"]}))
    if not intact:  # zeros of the right length and time are what a power cut leaves
        time = reward.stat().st_mtime_ns
        reward.write_bytes(bytes(reward.stat().st_size))
        os.utime(reward, ns=(time, time))
    np.testing.assert_array_equal(Dataset.open(tmp_path / "it").columns["reward"], walk().columns["reward"])
    assert len(builds) == (1 if intact else 2)
    assert json.loads((entry / "map.json").read_text())["boots"] == plan["boots"] + (["another"] if intact else [])


def test_machines_that_share_a_cache_look_through_a_map_once_each(
    tmp_path: Path, cache: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    walk().write(tmp_path / "it", n_shards=2)
    looked = list[str]()
    monkeypatch.setattr(
        node_map,
        "_is_whole",
        lambda column, content, name, whole=node_map._is_whole: looked.append(name) or whole(column, content, name),
    )
    for machine in ("a", "b", "a", "b", "a"):
        monkeypatch.setattr(node_map, "boot", lambda machine=machine: machine)
        Dataset.open(tmp_path / "it").prepare()
    assert (len(builds), sorted(looked)) == (1, sorted(walk().columns))


@pytest.mark.long
def test_the_least_recently_used_goes_first_and_none_in_use(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four = [walk(500, seed).write(tmp_path / f"{seed}", n_shards=2) for seed in range(4)]
    prints = [data.fingerprint for data in four]
    paths = [tmp_path / f"{seed}" for seed in range(4)]
    del four
    Dataset.open(paths[0]).prepare()
    size = json.loads((cache / prints[0] / "map.json").read_text())["bytes"]
    monkeypatch.setenv("D3RAY_CACHE_LIMIT", str(int(2.5 * size)))  # each has about as many episodes as the next
    Dataset.open(paths[1]).prepare()
    gc.collect()
    for k, entry in enumerate((prints[1], prints[0])):  # 1 was used before 0
        os.utime(cache / entry / "in-use", (1000 + k, 1000 + k))
    Dataset.open(paths[2]).prepare()
    assert maps(cache) == {prints[0], prints[2]}
    reward = Dataset.open(paths[0]).columns["reward"]  # a view is enough to hold the whole map
    os.utime(cache / prints[0] / "in-use", (1000, 1000))
    Dataset.open(paths[3]).prepare()
    assert maps(cache) == {prints[0], prints[3]}
    holds = run("x = data.columns['reward']\nprint('held', flush=True)\nsys.stdin.readline()", paths[3])
    assert line(holds) == "held\n"
    with pytest.raises(StorageError) as error:
        Dataset.open(paths[1]).prepare()
    assert "has no room in" in str(error.value)
    assert "are in use" in str(error.value)
    assert maps(cache) == {prints[0], prints[3]}
    holds.communicate("done\n")
    Dataset.open(paths[1]).prepare()
    assert maps(cache) == {prints[0], prints[1]}
    del reward
    gc.collect()
    Dataset.open(paths[2]).prepare()
    assert prints[2] in maps(cache)


def test_a_map_larger_than_the_limit_is_refused(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = walk().write(tmp_path / "it", n_shards=2)
    monkeypatch.setenv("D3RAY_CACHE_LIMIT", "1KB")
    with pytest.raises(StorageError, match=r"is larger than the cache may be \(1,000\): raise D3RAY_CACHE_LIMIT\.$"):
        data.prepare()
    monkeypatch.setenv("D3RAY_CACHE_LIMIT", "much")
    with pytest.raises(ConfigError, match="D3RAY_CACHE_LIMIT is 'much'"):
        data.prepare()
    monkeypatch.setenv("D3RAY_CACHE_LIMIT", "0.5 GiB")
    data.prepare()


def test_a_damaged_shard_makes_no_map(tmp_path: Path, cache: Path) -> None:
    data = walk().write(tmp_path / "it", n_shards=2)
    shard = tmp_path / "it/data-00001-of-00002.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match=f"^{shard} is damaged"):
        data.prepare()
    assert maps(cache) == set()


def test_a_full_disk_makes_no_map(tmp_path: Path, cache: Path) -> None:
    walk(20_000).write(tmp_path / "it", n_shards=2)
    code = """
    import resource
    from d3ray.data.errors import StorageError
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        data.columns
    except StorageError as error:
        print(error)
    """
    said, _ = run(code, tmp_path / "it").communicate()
    assert said.endswith("cannot be written: the file would be larger than is allowed here.\n")
    assert said.count("\n") == 1
    assert maps(cache) == set()


def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = walk().write(tmp_path / "it", n_shards=2)
    (tmp_path / "file").touch()
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=r"set D3RAY_CACHE to a folder that can\.$"):
        data.prepare()
