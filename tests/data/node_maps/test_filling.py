"""How a map is filled from an object store: shards side by side, what fails once again, and how far it is for who looks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.errors import DataError, StorageError
from d3ray.data.node_maps.cache import under_way
from d3ray.data.node_maps.node_map import AT_ONCE
from d3ray.data.storage import shard_files
from d3ray.data.storage.files import Place

from ...platform.object_store import ObjectStore, object_store

pytest.importorskip("obstore")


@pytest.fixture(scope="module")
def store() -> Generator[ObjectStore]:
    with object_store() as server:
        yield server


@pytest.fixture
def where(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shard_files, "_WAITS", (0.0, 0.0, None))
    return store.uri(f"sets/{tmp_path.name}")


def walk(n: int = 4000) -> Dataset:
    rng = np.random.default_rng(0)
    return Dataset.from_arrays(rng.normal(size=(n, 5)), rng.normal(size=(n, 2)), rng.normal(size=n), np.arange(n) % 10 == 9)


def test_shards_come_side_by_side_and_no_more_at_a_time_than_there_is_room_for(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = walk()
    data.write(where, n_shards=2 * AT_ONCE)
    together, more, asked, fetch = threading.Barrier(AT_ONCE), threading.Event(), list[str](), Place.fetch

    def counted(place: Place, name: str, target: Path) -> None:
        asked.append(name)
        if len(asked) > AT_ONCE:
            more.set()
        elif together.wait(20) == 0:  # one by one they would never come together
            crowded.append(more.wait(0.3))
        together.wait(20)
        fetch(place, name, target)

    crowded = list[bool]()
    monkeypatch.setattr(Place, "fetch", counted)
    opened = Dataset.open(where)
    for name, column in opened.columns.items():
        np.testing.assert_array_equal(column, data.columns[name])
    assert len(asked) == 2 * AT_ONCE
    assert crowded == [False]


@pytest.mark.parametrize("fault", ["an error", "other bytes"])
def test_what_fails_once_is_read_again_and_what_fails_always_is_said(
    where: str, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    data = walk()
    data.write(where, n_shards=3)
    asked, fetch, failing = Counter[str](), Place.fetch, 1

    def flaky(place: Place, name: str, target: Path) -> None:
        asked[name] += 1
        fetch(place, name, target)
        if asked[name] <= failing and fault == "an error":
            raise StorageError(f"{place.address(name)} cannot be copied: the store does not answer.")
        if asked[name] <= failing:
            content = bytearray(target.read_bytes())
            content[len(content) // 2] ^= 1
            target.write_bytes(content)

    monkeypatch.setattr(Place, "fetch", flaky)
    np.testing.assert_array_equal(Dataset.open(where).columns["reward"], data.columns["reward"])
    assert set(asked.values()) == {2}

    other = walk(500)
    other.write(where, overwrite=True, n_shards=2)
    failing = 9
    said = r"\.arrow\?.* is damaged: its content is not what was written" if fault == "other bytes" else "the store does not answer"
    with pytest.raises(DataError if fault == "other bytes" else StorageError, match=said):
        Dataset.open(where).prepare()


def test_a_disk_that_fails_once_is_read_again(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, failed = walk().write(tmp_path / "set", n_shards=2), list[Path]()
    sha256_of = shard_files.sha256_of

    def flaky(path: Path) -> str:
        if path not in failed:
            failed.append(path)
            raise OSError(5, "Input/output error")
        return sha256_of(path)

    monkeypatch.setattr(shard_files, "sha256_of", flaky)
    np.testing.assert_array_equal(Dataset.open(tmp_path / "set").columns["reward"], walk().columns["reward"])
    assert len(failed) == 2

    def broken(path: Path) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(shard_files, "sha256_of", broken)
    with pytest.raises(StorageError, match=r"data-00000-of-00002\.arrow cannot be read: input/output error\.$"):
        data.verify()


def test_how_far_it_is_can_be_seen(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = walk()
    data.write(where, n_shards=AT_ONCE + 1)
    reached, go, fetch, seen = threading.Event(), threading.Event(), Place.fetch, list[Any]()

    def stopped(place: Place, name: str, target: Path) -> None:
        if name.startswith(f"data-{AT_ONCE:05}"):  # the last one, which waits until another one is done
            reached.set()
            assert go.wait(20)
        fetch(place, name, target)

    monkeypatch.setattr(Place, "fetch", stopped)
    assert under_way() == (0, 0)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(lambda: Dataset.open(where).columns)
        assert reached.wait(20)
        seen.append(under_way())
        go.set()
        made.result()
    there, total = seen[0]
    assert 0 < there <= total == sum(column.nbytes for column in data.columns.values())
    assert under_way() == (0, 0)
