"""Checkpoints in an object store, where nothing can be renamed and nobody can be locked out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from d3ray.algos.saving.checkpoint import read_checkpoint
from d3ray.data.errors import StorageError
from d3ray.data.storage.stores.arrow_fs import ArrowFiles
from d3ray.platform.storage.folders import Folder
from d3ray.platform.storage.trials import Trial
from d3ray.platform.storage.writer import FencedError, Writer

from .bucket import register_bucket


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    register_bucket()
    made = Trial.create(Folder(f"fsspec+bucket://{tmp_path.name}/trial"), {"n_steps": 10}, (0,), {"name": "tiny"})
    yield made
    made.folder.remove()


def commit(writer: Writer, step: int, value: float) -> None:
    writer.commit(step, {"w": torch.full((3,), value)}, {"value": value}, [], keep=2)


def keep_best(writer: Writer, value: float) -> None:
    writer.keep_best(0, {"w": torch.full((3,), value)}, {"value": value})


def best_of(trial: Trial) -> float:
    with (trial.folder / "best" / "seed-0").as_local() as local:
        tensors, meta, _ = read_checkpoint(local)
    assert tensors["w"].tolist() == [meta["value"]] * 3
    return meta["value"]


def files(trial: Trial, name: str) -> list[str]:
    """Without the mark that each upload has."""
    return sorted(file.partition("-")[2] or file for file in (trial.folder / name).names())


WHOLE = ["manifest.json", "meta.json", "tensors.safetensors"]


def test_an_orphan_harms_nothing_of_its_successor(trial: Trial) -> None:
    old, new = Writer(trial), Writer(trial)
    commit(new, 100, 1.0)
    keep_best(new, 1.0)
    with pytest.raises(FencedError, match="attempt 2"):
        commit(old, 100, 2.0)
    with pytest.raises(FencedError, match="attempt 2"):
        keep_best(old, 2.0)
    found = new.newest()
    assert found is not None
    assert (found[1]["value"], best_of(trial)) == (1.0, 1.0)
    assert files(trial, "checkpoints/step-000000100") == files(trial, "best/seed-0") == WHOLE


@pytest.mark.parametrize("part", ["meta.json", "tensors.safetensors", "manifest.json"])
def test_the_best_stays_until_a_better_one_is_whole(trial: Trial, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker dies before it uploads a part, and cannot clear away what it has uploaded either."""
    writer, put, write = Writer(trial), Folder.put, Folder.write_version
    keep_best(writer, 1.0)

    def die(folder: Folder, file: Path, name: str) -> None:
        if name.endswith(part):
            raise KeyboardInterrupt
        put(folder, file, name)

    def die_at_last(folder: Folder, name: str, content: bytes, version: str | None) -> str | None:
        if name == part:
            raise KeyboardInterrupt
        return write(folder, name, content, version)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "put", die)
        patch.setattr(Folder, "write_version", die_at_last)
        patch.setattr(Folder, "delete", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            keep_best(writer, 2.0)
    assert best_of(trial) == 1.0
    keep_best(Writer(trial), 3.0)
    assert best_of(trial) == 3.0
    assert files(trial, "best/seed-0") == WHOLE  # and what the dead one left is gone


def test_an_upload_that_fails_leaves_nothing_behind(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, put = Writer(trial), Folder.put
    keep_best(writer, 1.0)
    before = (trial.folder / "best/seed-0").names()

    def away(folder: Folder, file: Path, name: str) -> None:
        if name.endswith("meta.json"):
            raise StorageError("away")
        put(folder, file, name)

    monkeypatch.setattr(Folder, "put", away)
    with pytest.raises(StorageError, match="away"):
        keep_best(writer, 2.0)
    assert (trial.folder / "best/seed-0").names() == before


def test_a_checkpoint_that_a_store_cannot_give_now_is_kept(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OSError("the store does not answer")

    writer = Writer(trial)
    commit(writer, 100, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(ArrowFiles, "download", away)
        with pytest.raises(StorageError, match=r"cannot be copied to .*: the store does not answer\."):
            writer.newest()
    assert trial.committed == 100


def test_a_checkpoint_with_plainly_named_parts_is_read_and_replaced(trial: Trial, tmp_path: Path) -> None:
    from d3ray.algos.saving.checkpoint import write_checkpoint

    write_checkpoint(tmp_path / "plain", {"w": torch.ones(3)}, {"value": 1.0})
    for file in sorted((tmp_path / "plain").iterdir()):
        (trial.folder / "best" / "seed-0").put(file, file.name)
    assert best_of(trial) == 1.0
    keep_best(Writer(trial), 2.0)
    assert best_of(trial) == 2.0
    assert files(trial, "best/seed-0") == WHOLE
