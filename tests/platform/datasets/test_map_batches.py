"""A function of batches gives the same dataset here and on Ray, in actors too; final observations are worked out as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import d3ray
from d3ray.data.dataset import Dataset
from d3ray.data.errors import ConfigError, DataError
from d3ray.data.spec import Box, Environment, Spec
from d3ray.platform.datasets import parts

N = 300


@pytest.fixture
def frames() -> Dataset:
    """Images in episodes of some steps, with final ones, beside a number that is no observation; actions have bounds."""
    rng = np.random.default_rng(0)
    end = rng.random(N) < 0.2
    images = rng.integers(0, 255, (N, 4, 4), dtype=np.uint8)
    final = rng.integers(0, 255, (int(end[:-1].sum()) + 1, 4, 4), dtype=np.uint8)
    spec = Spec(observation=Box(shape=(4, 4), dtype="uint8"), action=Box(shape=(2,), low=(-9, -9), high=(9, 9)))
    about: dict[str, Any] = {"extra": {"info/x": rng.normal(size=N)}, "environment": Environment(id="Here-v0"), "spec": spec}
    steps = (images, rng.normal(size=(N, 2)), rng.normal(size=N), end)
    return Dataset.from_arrays(*steps, final_observations=final, name="frames", **about)


class Encoder:
    """Images to two numbers, with a weight that is made once."""

    def __init__(self, scale: float) -> None:
        self.weight = np.stack([np.full(16, scale), np.arange(16)], 1)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
        images = batch["observation"].reshape(len(batch["observation"]), -1)
        return {"observation": images @ self.weight, "info/x": None, "info/mean": images.mean(1), "reward": batch["reward"] + 1}


def encode(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    return Encoder(0.5)(batch)


def arrow(batch: pa.Table) -> pa.Table:
    reward = pa.array(np.asarray(batch["reward"]) * 2)
    return pa.table({"reward": reward})


def test_columns_come_from_a_function_of_whole_episodes(frames: Dataset) -> None:
    made = frames.map_batches(encode, batch_size=20)
    images = frames.columns["observation"].reshape(-1, 16).astype(np.float64)
    closing = frames.columns["closing"]
    np.testing.assert_allclose(made.columns["observation"], np.stack([images.sum(1) / 2, images @ np.arange(16)], 1), rtol=1e-6)
    np.testing.assert_array_equal(made.columns["reward"], np.where(closing, 0, frames.columns["reward"] + np.float32(1)))
    np.testing.assert_allclose(made.columns["info/mean"], np.where(closing, 0, images.mean(1)), rtol=1e-6)
    assert list(made.columns) == ["observation", "action", "reward", "terminated", "truncated", "closing", "info/mean"]
    assert made.columns["observation"].dtype == made.columns["info/mean"].dtype == np.float32
    assert (made.spec.observation, made.environment) == (Box(shape=(2,), dtype="float32"), frames.environment)
    assert made.spec.action == frames.spec.action  # with its bounds
    assert made.episodes.steps.tolist() == frames.episodes.steps.tolist()
    derived = made.provenance["derived"]
    assert derived["operation"] == "map_batches"
    assert derived["parameters"]["function"].endswith(".encode")
    assert derived["parents"][0]["fingerprint"] == frames.fingerprint
    sizes: list[int] = []
    frames.map_batches(lambda batch: sizes.append(len(batch["reward"])) or {}, batch_size=20)
    assert sum(sizes) == frames.n_rows
    assert max(sizes) <= max(20, int(frames.episodes.steps.max()) + 1)
    doubled = frames.map_batches(arrow, batch_format="pyarrow")
    np.testing.assert_array_equal(doubled.columns["reward"], frames.columns["reward"] * 2)
    parts_of_one = Dataset.from_arrays({"a": np.zeros((4, 1)), "b": np.zeros((4, 2))}, np.zeros(4, int), np.zeros(4), [0, 0, 0, 1])
    one = parts_of_one.map_batches(lambda batch: {"observation": batch["observation/b"] + 1})
    assert set(one.columns) == {"observation", "action", "reward", "terminated", "truncated", "closing"}


def test_it_is_the_same_on_ray_in_tasks_and_in_actors(
    local_ray: Path, tmp_path: Path, frames: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 2000)
    folder, here = frames.write(tmp_path / "frames", n_shards=3), frames.map_batches(encode)
    tasks = d3ray.map_batches(folder, encode, tmp_path / "tasks", batch_size=20)
    actors = d3ray.map_batches(frames, Encoder, tmp_path / "actors", arguments={"scale": 0.5}, name="it", n_shards=2, num_gpus=0)
    for made in (tasks, actors):
        made.verify()
        assert made.fingerprint == here.fingerprint
        assert made.statistics == here.statistics
        assert (made.environment, made.spec) == (frames.environment, here.spec)
        assert made.provenance["derived"]["parents"][0]["fingerprint"] == frames.fingerprint
    assert (tasks.name, actors.name, len(actors.folder.manifest.shards)) == ("tasks", "it", 2)  # type: ignore[union-attr]
    assert actors.provenance["derived"]["parameters"]["arguments"] == {"scale": "0.5"}
    for function in (wrong, Wrong):
        with pytest.raises(DataError, match=r"^The new column 'info/y' is int64 \[1\]; numbers are needed, one entry for each of"):
            d3ray.map_batches(folder, function, tmp_path / "no")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["actors", "frames", "tasks"]


def wrong(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    return {"info/y": [1]}


class Wrong:
    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
        return {"info/y": [1]}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda batch: {"reward": batch["reward"] / 0}, "The new column 'reward' has an infinite number in row"),
        (lambda batch: {"closing": ~batch["closing"]}, "changed 'closing'; how episodes end stays as it is"),
        (lambda batch: {"action": None}, "left nothing of 'action'"),
        (lambda batch: {"info/y": np.array(["a"] * len(batch["reward"]))}, "The new column 'info/y' is <U1"),
        (lambda batch: 3, "gave int; columns by name are needed"),
        (lambda batch: {"info/y": np.zeros((len(batch["reward"]), int(batch["closing"].sum())))}, "Column 'info/y' is float"),
    ],
)
def test_what_a_function_gives_is_looked_at(frames: Dataset, function: Any, message: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(DataError, match=message):
        frames.map_batches(function, batch_size=30)


def test_what_cannot_be_called_is_refused_before_any_work(frames: Dataset, tmp_path: Path) -> None:
    for options, message in (
        ({"batch_format": "pandas"}, "choose 'numpy' or 'pyarrow'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"arguments": {"scale": 1}}, "this is a function"),
        ({"num_gpus": 1}, "give a class"),
    ):
        with pytest.raises(ConfigError, match=message):
            d3ray.map_batches(frames, encode, tmp_path / "set", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="takes a function or a class"):
        frames.map_batches("encode")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
