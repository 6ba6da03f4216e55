"""What training reads is what was written: damage is found when data are first mapped, and by `verify` whatever says otherwise."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d3ray
from d3ray.data.errors import DataError
from d3ray.data.node_maps import node_map
from d3ray.data.storage import shard_files
from d3ray.data.storage.manifest import MANIFEST
from d3ray.jobs.data.inspect import InspectConfig, run

SHARD = "data-00000-of-00001.arrow"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process that has mapped nothing yet."""
    monkeypatch.setattr(node_map, "_seen", {})


def written(place: Path, **how: Any) -> Path:
    rng = np.random.default_rng(0)
    arrays = rng.normal(3, 2, (200, 2)), rng.uniform(-1, 1, (200, 1)), rng.normal(size=200), np.arange(200) % 10 == 9
    d3ray.Dataset.from_arrays(*arrays).write(place, **how)
    return place


def flip(path: Path) -> None:
    """Another bit in the middle of a file's numbers; its size stays."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "use",
    [
        lambda place: d3ray.BC(batch_size=8).fit(place, n_steps=1),
        lambda place: d3ray.Dataset.open(place).take(5).columns,
        lambda place: d3ray.Dataset.open(place).episodes[0].rewards,
        lambda place: d3ray.doctor(d3ray.Dataset.open(place)),
        lambda place: d3ray.Dataset.open(place).verify(),
    ],
)
def test_a_damaged_shard_is_refused_by_whatever_reads_it(tmp_path: Path, use: Callable[[Path], Any]) -> None:
    place = written(tmp_path / "it")
    flip(place / SHARD)
    with pytest.raises(DataError, match=r"is damaged: its content is not what was written \(SHA-256 differs\)"):
        use(place)


def test_inspect_without_the_doctor_says_what_it_has_read(tmp_path: Path) -> None:
    place = written(tmp_path / "it")
    assert "can be opened; verify=true reads its files too" in run(InspectConfig(dataset=str(place), doctor=False)).made
    assert "can be read. Every file is as it was written." in run(InspectConfig(dataset=str(place), doctor=False, verify=True)).made


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that were compared with their SHA-256."""
    found, of = list[Path](), shard_files.sha256_of

    def counted(path: Path) -> str:
        found.append(path)
        return of(path)

    monkeypatch.setattr(shard_files, "sha256_of", counted)
    return found


def test_a_file_is_compared_once_and_again_when_it_was_touched(
    tmp_path: Path, hashed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_map, "_NOTED", 1)
    monkeypatch.setenv("D3RAY_CACHE", str(tmp_path / "cache"))
    place = written(tmp_path / "it")
    for _ in range(3):
        d3ray.Dataset.open(place).columns  # noqa: B018
    assert len(hashed) == 1
    node_map._seen.clear()  # pyright: ignore[reportPrivateUsage] - another process
    d3ray.Dataset.open(place).columns  # noqa: B018
    assert len(hashed) == 1
    flip(place / SHARD)
    with pytest.raises(DataError, match="SHA-256 differs"):
        d3ray.Dataset.open(place).columns  # noqa: B018
    flip(place / SHARD)
    d3ray.Dataset.open(place).prepare()
    assert len(hashed) == 3  # prepare always compares, and what is mapped then is known


def edited(place: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((place / MANIFEST).read_bytes())
    change(manifest)
    (place / MANIFEST).write_text(json.dumps(manifest))


def _mean(manifest: dict[str, Any]) -> None:
    manifest["statistics"]["observation"]["mean"][1] += 0.5


def _reward(manifest: dict[str, Any]) -> None:
    manifest["statistics"]["reward"]["std"] *= 1.01


def _ends(manifest: dict[str, Any]) -> None:
    manifest["statistics"]["n_terminated"] = 3


def _longer(manifest: dict[str, Any]) -> None:
    manifest["statistics"]["observation"]["std"].append(1.0)


def _bounds(manifest: dict[str, Any]) -> None:
    manifest["spec"]["action"] |= {"low": -0.1, "high": 0.1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_mean, r"statistics\.observation\.mean\[1\] is 3\.\d+, and the rows come to [23]\.\d+"),
        (_reward, r"statistics\.reward\.std is"),
        (_ends, r"statistics\.n_terminated is 3, and the rows come to 20"),
        (_longer, r"statistics\.observation\.std is not what the rows come to"),
        (_bounds, r"statistics\.action_outside is 0, and the rows come to 1\d\d"),
    ],
)
@pytest.mark.parametrize("n_shards", [1, 3])
def test_what_was_edited_by_hand_does_not_pass_verify(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str, n_shards: int
) -> None:
    place = written(tmp_path / "it", n_shards=n_shards)
    d3ray.Dataset.open(place).verify()
    edited(place, change)
    with pytest.raises(DataError, match=rf"dataset\.json was changed: {said}"):
        d3ray.Dataset.open(place).verify()


def test_a_table_of_episodes_that_was_replaced_does_not_pass_verify(tmp_path: Path) -> None:
    place, other = written(tmp_path / "it"), tmp_path / "other"
    whole = d3ray.Dataset.open(place)
    paid = whole.columns["reward"][~whole.columns["closing"]] * 2
    seen_rows, done = (whole.columns[name][~whole.columns["closing"]] for name in ("observation", "action"))
    d3ray.Dataset.from_arrays(seen_rows, done, paid, np.arange(200) % 10 == 9).write(other)
    content = (other / "episodes.arrow").read_bytes()
    (place / "episodes.arrow").write_bytes(content)
    sha = hashlib.sha256(content).hexdigest()
    edited(place, lambda manifest: manifest["episodes"].update(sha256=sha, bytes=len(content)))
    with pytest.raises(DataError, match=r"episodes\.arrow is damaged: 'return' is not that of the rows"):
        d3ray.Dataset.open(place).verify()


def test_observations_may_have_any_names(tmp_path: Path) -> None:
    seen = {name: np.arange(4.0) for name in ("min", "max", "mean")}
    d3ray.Dataset.from_arrays(seen, np.zeros((4, 1)), np.zeros(4), [0, 1, 0, 1]).write(tmp_path / "it").verify()


def test_rounding_passes(tmp_path: Path) -> None:
    place = written(tmp_path / "it", compression="zstd", n_shards=2)
    text = (place / MANIFEST).read_text()
    (place / MANIFEST).write_text(re.sub(r"(\d\.\d{10})\d+", r"\1", text))  # as sums come out elsewhere
    d3ray.Dataset.open(place).verify()
