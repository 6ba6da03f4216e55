"""A dataset behind a URI is replaced when the new one is whole, and not before; who still reads the old one is told."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from d3ray import Dataset
from d3ray.data.errors import DataError, StorageError
from d3ray.data.storage import writing
from d3ray.data.storage.files import Place
from d3ray.data.storage.manifest import MANIFEST, Manifest
from d3ray.data.storage.shards import write_shard
from d3ray.data.storage.writing import Draft


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"fsspec+memory://{tmp_path.name}/somewhere/it"


def walk(seed: int = 0) -> Dataset:
    """Of the same sizes whatever the seed."""
    rng, end = np.random.default_rng(seed), np.arange(2000) % 20 == 19
    arrays = rng.normal(size=(2000, 3)), rng.uniform(-1, 1, (2000, 2)), rng.normal(size=2000)
    return Dataset.from_arrays(*arrays, end, np.zeros(2000, bool))


def assert_whole(uri: str, expected: Dataset) -> None:
    """It is all that lies there."""
    found = Dataset.open(uri)
    found.verify()
    assert found.fingerprint == expected.fingerprint
    manifest = Manifest.model_validate_json(Place(uri).read(MANIFEST) or b"")
    assert Place(uri).names() == sorted([MANIFEST, manifest.episodes.file, *(shard.file for shard in manifest.shards)])


def test_a_dataset_is_written_behind_a_uri_and_over_itself(uri: str) -> None:
    data = walk()
    data.write(uri, n_shards=3)
    assert_whole(uri, data)
    opened = Dataset.open(uri)
    assert opened.write(uri, overwrite=True, n_shards=2).n_transitions == 2000
    assert_whole(uri, data)
    relabelled = Dataset.open(uri).relabel("reward - 1").write(uri, overwrite=True)
    np.testing.assert_array_equal(relabelled.columns["reward"], Dataset.open(uri).columns["reward"])
    assert_whole(uri, data.relabel("reward - 1"))
    with pytest.raises(StorageError, match="is a dataset already"):
        data.write(uri)


def test_a_write_that_fails_leaves_what_was_there(uri: str) -> None:
    with pytest.raises(RuntimeError), Draft(uri) as draft:  # noqa: PT012 - it fails in between
        write_shard(draft.folder, 0, 1, walk().to_steps(), first_episode=0)
        raise RuntimeError
    assert Place(uri).names() == []
    with pytest.raises(DataError, match="There is no dataset at fsspec"):
        Dataset.open(uri)
    old = walk(1)
    old.write(uri, n_shards=3)
    with pytest.raises(RuntimeError), Draft(uri, overwrite=True) as draft:  # noqa: PT012 - it fails in between
        write_shard(draft.folder, 0, 1, walk().to_steps(), first_episode=0)
        assert len(Place(uri).names()) == 7  # those of the old one, a shard, and who writes
        raise RuntimeError
    assert_whole(uri, old)
    with pytest.raises(DataError, match="new reward is inf"):  # in the second of three shards
        Dataset.open(uri).relabel(lambda reward, step: np.where(reward == old.columns["reward"][900], np.inf, reward)).write(
            uri, overwrite=True, n_shards=3
        )
    assert_whole(uri, old)


@pytest.mark.parametrize("at", ["write_episodes", "write_manifest"])
def test_a_writer_that_is_killed_leaves_what_was_there_and_the_next_one_clears_up(tmp_path: Path, at: str) -> None:
    uri = f"fsspec+file://{tmp_path}/it"
    old = walk(1)
    old.write(uri, n_shards=2)
    code = f"""
import os, signal, numpy as np
from d3ray import Dataset
from d3ray.data.storage import writing
writing.{at} = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
Dataset.from_arrays(np.zeros((9, 1)), [0] * 9, [0] * 9, [1] * 9).write({uri!r}, overwrite=True)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert len(Place(uri).names()) > 4
    found = Dataset.open(uri)
    found.verify()
    assert found.fingerprint == old.fingerprint
    walk(2).write(uri, overwrite=True)
    assert_whole(uri, walk(2))


def test_who_still_reads_what_was_replaced_is_told(uri: str) -> None:
    early = walk(1).write(uri, n_shards=2)
    sent = pickle.dumps(early)
    walk(2).write(uri, n_shards=2, overwrite=True)
    with pytest.raises(DataError, match=r"data-00000-of-00002-[0-9a-f]{8}\.arrow is missing\.$"):
        early.verify()
    with pytest.raises(DataError, match=r"data-0000\d-of-00002-[0-9a-f]{8}\.arrow is missing\.$"):
        _ = early.columns["reward"]
    with pytest.raises(DataError, match=f"^{uri.replace('+', '[+]')} was replaced by another dataset while it was in use; open it"):
        pickle.loads(sent)


@pytest.mark.parametrize("scheme", ["fsspec+memory", "file"])
def test_of_two_writes_at_once_one_is_whole_and_the_other_fails(tmp_path: Path, scheme: str) -> None:
    uri = f"{scheme}://{tmp_path}/it"
    walk(1).write(uri)
    with pytest.raises(StorageError, match=f"{tmp_path}/it was written by another in the meantime; what is there now is left"):  # noqa: PT012, SIM117
        with Draft(uri, overwrite=True) as draft:
            record = write_shard(draft.folder, 0, 1, walk(2).to_steps(), first_episode=0)
            walk(3).write(uri, overwrite=True)
            draft.commit([record], name="it", summary=walk(2).summary)
    assert_whole(uri, walk(3))


@pytest.mark.parametrize("scheme", ["fsspec+memory", "file"])
def test_of_two_writes_that_end_together_the_last_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    uri = f"{scheme}://{tmp_path}/it"
    walk(1).write(uri)
    write_manifest = writing.write_manifest

    def late(place: Place, manifest: Manifest) -> None:
        monkeypatch.setattr(writing, "write_manifest", write_manifest)
        walk(3).write(uri, overwrite=True)  # all of it between the other's last look and its manifest
        write_manifest(place, manifest)

    monkeypatch.setattr(writing, "write_manifest", late)
    walk(2).write(uri, overwrite=True)
    assert_whole(uri, walk(2))


def test_what_nobody_writes_any_more_is_told_from_what_is_written(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Draft(uri) as draft:
        write_shard(draft.folder, 0, 1, walk(1).to_steps(), first_episode=0)
        elsewhere = f".d3ray-draft-{{}}-1-{{}}-{draft.folder.mark[::-1]}"
        Place(uri).write(f"data-00000-of-00001-{draft.folder.mark[::-1]}.arrow", b"of another machine")
        Place(uri).write(elsewhere.format("another", int(time.time())), b"")
        walk(2).write(uri)
        assert len(Place(uri).names()) == 3 + 2 + 2  # a dataset, and both drafts
        monkeypatch.setattr(time, "time", lambda: 4e9)
        walk(3).write(uri, overwrite=True)
        assert len(Place(uri).names()) == 3 + 2
    assert_whole(uri, walk(3))


def test_a_manifest_that_came_though_its_answer_did_not_keeps_its_files(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walk(1).write(uri)
    write_manifest = writing.write_manifest

    def lost(place: Place, manifest: Manifest) -> None:
        write_manifest(place, manifest)
        raise StorageError("the answer was lost")

    monkeypatch.setattr(writing, "write_manifest", lost)
    with pytest.raises(StorageError, match="the answer was lost"):
        walk(2).write(uri, overwrite=True)
    found = Dataset.open(uri)
    found.verify()
    assert found.fingerprint == walk(2).fingerprint
