"""Derived datasets are the same whoever writes which shard, and nothing is left of what failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from d3ray.data.dataset import Dataset
from d3ray.data.errors import DataError
from d3ray.platform.datasets import derive
from d3ray.platform.datasets.derive import write_dataset


def walk(n: int, seed: int) -> Dataset:
    rng = np.random.default_rng(seed)
    end = rng.random((2, n)) < 0.05
    return Dataset.from_arrays(rng.normal(size=(n, 3)), rng.uniform(-1, 1, (n, 2)), rng.normal(1, 5, n), end[0], end[1])


def shifted(reward: np.ndarray, next_observation: np.ndarray) -> np.ndarray:
    return reward + next_observation @ np.array([0.1, 0.2, 0.3], np.float32)


OPERATIONS: list[Callable[[Dataset, Dataset], Dataset]] = [
    lambda a, b: a.filter("steps > 3").relabel("reward - 1"),
    lambda a, b: Dataset.concat([a.top(0.5), b.relabel(lambda reward, terminated: reward * 2 + terminated)]),
    lambda a, b: Dataset.concat([a, b]).shuffle(3).relabel(shifted),
]


@pytest.mark.parametrize("k", range(len(OPERATIONS)))
def test_a_derived_dataset_is_the_same_whoever_writes_which_shard(local_ray: Path, tmp_path: Path, k: int) -> None:
    a = walk(3000, 1).write(tmp_path / "a", n_shards=4, compression="zstd")
    b = walk(1000, 2).write(tmp_path / "b", n_shards=2)
    derived = OPERATIONS[k](a, b)
    said: list[tuple[str, float | None]] = []

    def progress(what: str, total: float | None = None):
        said.append((what, total))
        return derive.no_progress(what, total)

    there = write_dataset(derived, tmp_path / "there", n_shards=5, parallel=True, name="best", progress=progress)
    here = write_dataset(derived, tmp_path / "here", n_shards=2, compression="zstd")
    in_memory = OPERATIONS[k](walk(3000, 1), walk(1000, 2))
    assert there.fingerprint == here.fingerprint == in_memory.fingerprint == derived.write(tmp_path / "plain").fingerprint
    assert there.statistics == here.statistics == in_memory.statistics
    assert there.episodes.returns.tolist() == here.episodes.returns.tolist()
    assert there.provenance["derived"]["operation"] == derived.provenance["derived"]["operation"]
    assert (there.name, here.name) == ("best", derived.name)
    assert said == [("writing shards", 5), ("measuring", 1)]
    assert len(list((tmp_path / "there").glob("data-*"))) == 5
    there.verify()


def test_what_a_worker_finds_is_said_and_nothing_is_left(local_ray: Path, tmp_path: Path) -> None:
    a = walk(3000, 1).write(tmp_path / "a", n_shards=4)
    with pytest.raises(DataError, match=r"^The new reward is inf in row"):
        write_dataset(a.relabel("1 / (step - 30)"), tmp_path / "new", n_shards=3, parallel=True)
    shard = tmp_path / "a/data-00002-of-00004.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match=f"^{shard} is damaged"):
        write_dataset(a.filter("steps > 3"), tmp_path / "new", n_shards=3, parallel=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_when_workers_are_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = walk(500, 1).write(tmp_path / "a", n_shards=2), walk(100, 2)
    assert not derive._is_parallel(a, 2)
    monkeypatch.setattr(derive, "_SMALL", 1000)
    assert derive._is_parallel(a.filter("steps > 2"), 2)
    assert not derive._is_parallel(a, 1)
    assert not derive._is_parallel(Dataset.concat([a, b]), 2)  # what is in memory would have to be sent
    assert not derive._is_parallel(b, 2)
    monkeypatch.setattr(derive, "_SMALL", 1 << 30)
    monkeypatch.setattr(derive, "node_count", lambda: 3)
    assert derive._is_parallel(a, 2)


def test_a_dataset_behind_a_uri_can_be_derived_from_itself(local_ray: Path, tmp_path: Path) -> None:
    uri = f"fsspec+file://{tmp_path}/it"
    data = walk(2000, 1).write(uri, n_shards=3)
    with pytest.raises(DataError, match="new reward is inf"):
        write_dataset(data.relabel("1 / (step - 30)"), uri, overwrite=True, n_shards=3, parallel=True)
    kept = Dataset.open(uri)
    kept.verify()
    assert kept.fingerprint == data.fingerprint
    expected = walk(2000, 1).filter("steps > 3").fingerprint
    assert write_dataset(kept.filter("steps > 3"), uri, overwrite=True, parallel=True, n_shards=2).fingerprint == expected
    assert Dataset.open(uri).fingerprint == expected
    assert len(list((tmp_path / "it").iterdir())) == 4
